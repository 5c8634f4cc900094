"""Tricks of hand-made clients as steps: each is a transaction that knows what must come of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation import ack_tricks, end_tricks, other_tricks, run_tricks, settling_tricks
from tests.simulation.servers import broker_names
from tests.simulation.short.actors import Actor
from tests.simulation.short.draft import Draft
from tests.simulation.short.script import Step
from tests.simulation.world import Verb

ALL = {
    trick.__name__.replace("_", " "): trick
    for trick in (
        end_tricks.selective_commit,
        end_tricks.surplus,
        end_tricks.orphan,
        end_tricks.lost_messages,
        end_tricks.zombie_sender,
        ack_tricks.zombie_acker,
        ack_tricks.late_subscription,
        end_tricks.contrary_ends,
        end_tricks.end_without_counts,
        end_tricks.end_of_nothing,
        other_tricks.deletion,
        ack_tricks.acks_in_doubt,
        ack_tricks.counted_acks,
        ack_tricks.seek_back,
        end_tricks.stuck_predecessor,
        end_tricks.passed_on,
        settling_tricks.made_up,
        settling_tricks.overtaking,
        other_tricks.first_sequence,
        other_tricks.old_incarnation,
        other_tricks.older_watermark,
        other_tricks.late_reader,
    )
}
MIXED_RUNS = "mixed runs"
UNCOUNTED = "end without counts"


ALL_AND_RUNS = {**ALL, MIXED_RUNS: run_tricks.mixed_runs}


async def trick(actor: Actor, step: Step, *, name: str) -> None:
    world = actor.world
    await ALL_AND_RUNS[name](world, actor.unit(step), actor.random(f"trick/{step.number}"))


def hand_made(draft: Draft) -> None:
    """Some tricks, one after the other, by one or two clients."""
    # Where transactions end without counts, what a stranger writes into one that he guessed counts.
    names = [one for one in ALL if one != UNCOUNTED or "strangers" not in draft.scenarios]
    for _ in range(draft.random.choice((1, 2))):
        some_tricks(draft, names, draft.random.randint(2, 5))


def some_tricks(draft: Draft, names: Sequence[str], count: int) -> None:
    """Some of these, one after the other, by one client."""
    random = draft.random
    for topic in ("in", "mix", "out"):
        draft.topic(topic, 2)
    client = draft.client("sloppy")
    for _ in range(count):
        name = random.choice(names)
        draft.step(client, "trick", name=name, pause_s=random.choice((0.0, 0.05)))


def mixed_runs(draft: Draft) -> None:
    """Clients whose commands come in runs, of which some fail."""
    random = draft.random
    draft.topic(run_tricks.TOPIC, 1)
    # No client holds the broker to what it confirms before it is durable.
    draft.flags["loses_plain"] = True
    if random.random() < 0.7:
        draft.settings["broker"] |= {
            "durability": "os",
            "sync_interval_ms": random.choice((5, 200)),
        }
    for _ in range(random.choice((1, 2))):
        client = draft.client("hasty")
        for _ in range(random.randint(3, 6)):
            draft.step(client, "trick", name=MIXED_RUNS, pause_s=random.choice((0.0, 0.02)))


def lost_stores(draft: Draft) -> None:
    """A coordinator loses its store again and again, while the broker starts anew."""
    random = draft.random
    draft.topic("mix", 2)
    client = draft.client("sloppy")
    for _ in range(random.choice((2, 3))):
        lost = draft.step(
            client, "trick", name="old incarnation", pause_s=random.choice((0.0, 0.05))
        )
        draft.fault(
            "crash",
            step=lost,
            delay_s=random.uniform(0.0, 0.1),
            server="broker",
            power_loss=random.random() < 0.5,
            in_write_s=0.0,
            down_s=0.01,
        )


def watermarks(draft: Draft) -> None:
    """Brokers move, or fall, while coordinators tell them what has ended."""
    random = draft.random
    draft.topic("mix", 2)
    client = draft.client("sloppy")
    for _ in range(random.choice((2, 3))):
        told = draft.step(
            client,
            "trick",
            name=random.choice(("older watermark", "older watermark", "old incarnation")),
            pause_s=random.choice((0.0, 0.05)),
        )
        kind = random.choice(("member killed", "pinned"))
        delay_s = random.uniform(0.0, 0.4)
        # Whichever of them has the partition.
        for server in broker_names(3):
            if kind == "pinned":
                arguments: dict[str, Any] = {"seconds": 1.0, "member": random.randrange(3)}
            else:
                arguments = {"down_s": 0.01, "for_good": False}
            draft.fault(kind, step=told, delay_s=delay_s, server=server, **arguments)


VERBS: dict[str, Verb] = {"trick": trick}
