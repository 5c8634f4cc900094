"""A profile for each rule, with clients and faults chosen to provoke it.

The rules have letters in docs/protocol/rules.md. Each names the situations that must come about for
it to count: histories without them prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.short.chains import chains
from tests.simulation.short.consumers import crowd
from tests.simulation.short.draft import Draft
from tests.simulation.short.hasty import hasty
from tests.simulation.short.jobs import jobs, terminations
from tests.simulation.short.ledgers import ledgers
from tests.simulation.short.lookers import lookers
from tests.simulation.short.producers import behind, transactions
from tests.simulation.short.tricks import some_tricks
from tests.simulation.short.workers import group_workers, workers

TRICKS_EACH = 8


@dataclass(frozen=True)
class Rule:
    """
    Attributes:
        parts: what clients do beside tricks; each as often as it stands here.
        tricks: what two more clients do, by turns.
        faults: which, and how likely each is.
        needed: situations that come about, over a few seeds together.
        settings: of servers and topics.
    """

    about: str
    parts: tuple[Callable[[Draft], None], ...]
    faults: Mapping[str, float]
    needed: tuple[str, ...]
    tricks: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def write(self, draft: Draft) -> None:
        for part in self.parts:
            part(draft)
        if self.tricks:
            for _ in range(2):
                some_tricks(draft, self.tricks, TRICKS_EACH)
        for kind, values in self.settings.items():
            draft.settings[kind].update(values)


CRASHES = {"crash": 1.7, "link": 0.5}
RULES = {
    "a": Rule(
        "replies wait until what they depend on is durable; power goes while they wait",
        (transactions, transactions, transactions, workers, crowd, lookers, lookers),
        {"crash": 4.0, "power cut": 1.0, "disk stall": 1.0},
        ("a lost groups",),
    ),
    "b": Rule(
        "a failed write or sync ends the process at once",
        (transactions, transactions, transactions, workers),
        {"disk failure": 1.0, "link": 0.3},
        ("b broker ended", "b coordinator ended"),
    ),
    "c": Rule(
        "what the watermark covers stays ended, also after its index row is forgotten",
        (transactions, transactions),
        CRASHES,
        ("c watermark", "c zombie", "c"),
        ("zombie sender", "zombie sender", "older watermark"),
        {"coordinator": {"watermark_interval_ms": 100, "watermark_listed_age_ms_min": 300}},
    ),
    "d": Rule(
        "subscriptions record ends as partitions do, empty ones too",
        (transactions, transactions, workers, crowd),
        CRASHES,
        ("d", "d late"),
        ("zombie acker", "late subscription"),
    ),
    "e": Rule(
        "a repeated end succeeds only if it is the same",
        (transactions, transactions),
        {**CRASHES, "copies": 2.0},
        ("e",),
        ("contrary ends", "selective commit"),
    ),
    "f": Rule(
        "a broker aborts by itself only what its coordinator has ended",
        (transactions, transactions),
        CRASHES,
        ("f", "f orphan", "f made up", "f overtaking"),
        ("orphan", "made up", "overtaking"),
    ),
    "g": Rule(
        "surplus is discarded, a loss is never passed over",
        (transactions, transactions),
        CRASHES,
        ("g", "g loss"),
        ("surplus", "lost messages", "zombie sender"),
    ),
    "h": Rule(
        "a selection covers acks and messages; a commit of nothing writes no marker",
        (transactions, transactions),
        {**CRASHES, "copies": 1.0},
        ("h", "h acks"),
        ("selective commit", "end of nothing", "counted acks", "counted acks"),
    ),
    "i": Rule(
        "mark-delete never passes a pending ack, and an abort gives everything back",
        (transactions, transactions, workers, workers, crowd, hasty),
        {**CRASHES, "client crash": 0.5, "half-open": 0.3},
        ("i", "i conflict", "i dropped"),
        ("acks in doubt", "seek back"),
    ),
    "j": Rule(
        "nothing that transactions hold is deleted; what is gone counts as done",
        (transactions, transactions),
        CRASHES,
        ("j",),
        ("deletion",),
    ),
    "k": Rule(
        "plain sends after a commit, and the next transaction, keep their order",
        (transactions, transactions, transactions, behind, chains),
        {"crash": 1.3, "delays": 1.0, "link": 1.0},
        ("k plain", "k next", "k stuck"),
        ("stuck predecessor", "passed on"),
    ),
    "l": Rule(
        "an unknown producer begins at 0",
        (transactions, transactions),
        {**CRASHES, "copies": 1.0},
        ("l",),
        ("first sequence",),
    ),
    "m": Rule(
        "retention removes nothing that is being read; who comes late is told",
        (transactions, transactions, transactions, workers, crowd, lookers, lookers),
        CRASHES,
        ("m",),
        ("late reader",),
        {"topic": {"retention_bytes": 300}, "broker": {"retention_check_interval_ms": 100}},
    ),
    "n": Rule(
        "a coordinator of an older incarnation is refused",
        (transactions, transactions),
        CRASHES,
        ("n",),
        ("old incarnation",),
    ),
    "o": Rule(
        "of an identity the newest instance alone acts, and its database decides",
        (ledgers, ledgers, ledgers, jobs, terminations, terminations),
        {**CRASHES, "client crash": 1.0, "delays": 0.3},
        ("ledger fenced", "o completed", "o sequences", "o terminated", "o by hand"),
    ),
    "p": Rule(
        "a partition of a group has one owner, whose acks alone count; inputs keep their order",
        (transactions, transactions, group_workers, group_workers),
        {**CRASHES, "client crash": 2.0, "partition": 1.0, "half-open": 0.5, "delays": 0.3},
        ("p fenced", "p refused by a broker"),
    ),
    "q": Rule(
        "a key has one consumer at a time, until what it has of it is settled, and its order",
        (transactions, transactions, crowd, crowd, crowd, workers, workers),
        {**CRASHES, "client crash": 2.0, "link": 1.0, "half-open": 0.5, "delays": 0.3},
        ("q moves of keys", "q beside a pending ack"),
        settings={"broker": {"key_shared_waiting_max": 20}},
    ),
}
