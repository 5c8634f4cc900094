"""Families of seeds: a family for each rule, with faults and clients chosen to provoke it.

The rules have letters in docs/protocol/rules.md. Each family names the situations that must occur
for it to count: a run without them proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.simulation import ack_tricks, end_tricks, other_tricks, settling_tricks
from tests.simulation.plan import Plan
from tests.simulation.world import World

from magnetar_core.wire import common_pb2
from magnetar_core.wire import service_pb2 as pb


@dataclass(frozen=True)
class Family:
    """
    Attributes:
        plan: made anew for each seed.
        occurred: whether what it is about happened in this run.
        prepare: what to set up in a world before it runs.
    """

    rule: str
    about: str
    plan: Callable[[Random], Plan]
    occurred: Callable[[World], bool]
    prepare: Callable[[World], None] = lambda world: None


def _plan(
    programs: dict[str, int],
    faults: dict[str, float],
    *,
    period_s: float = 0.15,
    only: tuple[object, ...] | None = None,
    transactions_min: int = 60,
    crashes_min: int = 2,
    worker_type: str = "",
    **more: object,
) -> Callable[[Random], Plan]:
    def make(random: Random) -> Plan:
        return Plan(
            programs={"observer": 1, "inspector": 1, **programs},
            fault_weights=dict(faults),
            fault_period_s=period_s,
            worker_type=worker_type
            or random.choice(("shared", "key_shared", "failover", "exclusive")),
            tricks=only,
            transactions_min=transactions_min,
            crashes_min=crashes_min,
            **more,  # type: ignore[arg-type]
        )

    return make


def _provoked(*names: str) -> Callable[[World], bool]:
    return lambda world: all(world.provoked[name] for name in names)


CRASHES = {"broker crash": 1.0, "coordinator crash": 0.7, "link": 0.5}


# TxnID, topic and partition.
_EndAt = tuple[int, int, str, int]
ENDED = ("end_txn_on_partition_response", "end_txn_on_participants_response")


def _end_at(txn_id: common_pb2.TxnId, partition: common_pb2.Partition) -> _EndAt:
    return (txn_id.most_bits, txn_id.least_bits, partition.topic, partition.partition)


def watch_order(world: World) -> None:
    """Rule k: count plain sends that arrive before the transaction that they follow has ended."""
    ended: set[_EndAt] = set()
    asked: dict[int, list[_EndAt]] = {}

    def watch(frame: pb.Frame) -> None:
        for one in frame.commands:
            name = one.WhichOneof("body")
            if name == "end_txn_on_partition":
                end = one.end_txn_on_partition
                asked[one.request_id] = [_end_at(end.txn_id, end.partition)]
            elif name == "end_txn_on_participants":
                together = one.end_txn_on_participants
                asked[one.request_id] = [
                    _end_at(together.txn_id, part.partition) for part in together.partitions
                ]
            elif name in ENDED and one.request_id in asked:
                ended.update(asked[one.request_id])
            elif name == "send":
                place = (one.send.partition.topic, one.send.partition.partition)
                follows = [(two.most_bits, two.least_bits) for two in one.send.follows_txn_ids]
                if any((*two, *place) not in ended for two in follows):
                    kind = "k next" if one.send.HasField("txn_id") else "k plain"
                    world.provoked[kind] += 1

    world.network.watch = watch


def watch_watermark(world: World) -> None:
    """Rule c: count watermarks that reached the broker."""

    def watch(frame: pb.Frame) -> None:
        for one in frame.commands:
            if one.WhichOneof("body") == "low_watermark" and one.low_watermark.low_watermark > 1:
                world.provoked["c watermark"] += 1

    world.network.watch = watch


def watch_orphans(world: World) -> None:
    """Rule f: count what the broker reported to be held, and what it heard to be known."""

    def watch(frame: pb.Frame) -> None:
        for one in frame.commands:
            name = one.WhichOneof("body")
            if name == "low_watermark_response":
                answer = one.low_watermark_response
                world.provoked["f orphan"] += len(answer.orphans) + len(answer.held)
            elif name == "low_watermark":
                world.provoked["f known"] += len(one.low_watermark.known)

    world.network.watch = watch


FAMILIES = {
    family.rule: family
    for family in (
        Family(
            "a",
            "replies wait until what they depend on is durable; power goes while they wait",
            _plan(
                {"atomic": 3, "plain": 1, "worker": 1, "consumer": 1},
                {"broker crash": 1.0, "coordinator crash": 1.0, "disk stall": 2.0},
                crashes_min=25,
            ),
            lambda world: any(one.lost_batch_count for one in world.servers),
        ),
        Family(
            "b",
            "a failed write or sync ends the process at once",
            _plan(
                {"atomic": 3, "worker": 1, "plain": 1},
                {"disk failure": 1.0, "link": 0.3},
                crashes_min=5,
            ),
            lambda world: (
                any(one.fatal_count for one in world.brokers) and world.coordinator.fatal_count > 0
            ),
        ),
        Family(
            "c",
            "what the watermark covers stays ended, also after its index row is forgotten",
            _plan(
                {"atomic": 2, "sloppy": 2},
                CRASHES,
                only=(end_tricks.zombie_sender,),
                coordinator_settings={
                    "watermark_interval_ms": 100,
                    "watermark_listed_age_ms_min": 300,
                },
            ),
            _provoked("c watermark", "c zombie"),
            watch_watermark,
        ),
        Family(
            "d",
            "subscriptions record ends as partitions do, empty ones too",
            _plan(
                {"atomic": 2, "worker": 1, "consumer": 1, "sloppy": 2},
                CRASHES,
                only=(ack_tricks.zombie_acker, ack_tricks.late_subscription),
            ),
            _provoked("d", "d late"),
        ),
        Family(
            "e",
            "a repeated end succeeds only if it is the same",
            _plan(
                {"atomic": 2, "sloppy": 2},
                {**CRASHES, "duplicate": 2.0},
                only=(end_tricks.contrary_ends, end_tricks.selective_commit),
            ),
            _provoked("e"),
        ),
        Family(
            "f",
            "a broker aborts by itself only what its coordinator has ended",
            _plan(
                {"atomic": 2, "sloppy": 2},
                CRASHES,
                only=(end_tricks.orphan, settling_tricks.made_up, settling_tricks.overtaking),
            ),
            _provoked("f", "f orphan", "f made up", "f overtaking"),
            watch_orphans,
        ),
        Family(
            "g",
            "surplus is discarded, a loss is never passed over",
            _plan(
                {"atomic": 2, "sloppy": 3},
                CRASHES,
                only=(end_tricks.surplus, end_tricks.lost_messages, end_tricks.zombie_sender),
            ),
            _provoked("g", "g loss"),
        ),
        Family(
            "h",
            "a selection covers acks and messages; a commit of nothing writes no marker",
            _plan(
                {"atomic": 1, "plain": 1, "sloppy": 3},
                {**CRASHES, "duplicate": 1.0},
                only=(
                    end_tricks.selective_commit,
                    end_tricks.end_of_nothing,
                    ack_tricks.counted_acks,
                    ack_tricks.counted_acks,
                ),
                transactions_min=150,
            ),
            _provoked("h", "h acks"),
        ),
        Family(
            "i",
            "mark-delete never passes a pending ack, and an abort gives everything back",
            _plan(
                {"atomic": 2, "worker": 2, "consumer": 1, "sloppy": 2},
                {**CRASHES, "client crash": 0.5, "half-open": 0.3},
                only=(ack_tricks.acks_in_doubt, ack_tricks.seek_back),
                transactions_min=100,
            ),
            _provoked("i", "i conflict", "i dropped"),
        ),
        Family(
            "j",
            "nothing that transactions hold is deleted; what is gone counts as done",
            _plan({"atomic": 2, "sloppy": 2}, CRASHES, only=(other_tricks.deletion,)),
            _provoked("j"),
        ),
        Family(
            "k",
            "plain sends after a commit, and the next transaction, keep their order",
            _plan(
                {"atomic": 3, "sloppy": 1},
                {"coordinator crash": 1.0, "broker crash": 0.3, "delays": 1.0, "link": 1.0},
                only=(end_tricks.stuck_predecessor, end_tricks.passed_on),
                transactions_min=100,
            ),
            _provoked("k plain", "k next", "k stuck"),
            watch_order,
        ),
        Family(
            "l",
            "an unknown producer begins at 0",
            _plan(
                {"atomic": 2, "plain": 1, "sloppy": 1},
                {**CRASHES, "duplicate": 1.0},
                only=(other_tricks.first_sequence,),
            ),
            _provoked("l"),
        ),
        Family(
            "m",
            "retention removes nothing that is being read; who comes late is told",
            _plan(
                {"atomic": 3, "plain": 1, "worker": 1, "consumer": 1, "sloppy": 1, "observer": 2},
                CRASHES,
                only=(other_tricks.late_reader,),
                topic_settings={"retention_bytes": 1_000},
                broker_settings={"retention_check_interval_ms": 100},
                transactions_min=100,
            ),
            _provoked("m"),
        ),
        Family(
            "n",
            "a coordinator of an older incarnation is refused",
            _plan({"atomic": 2, "sloppy": 1}, CRASHES, only=(other_tricks.old_incarnation,)),
            _provoked("n"),
        ),
        Family(
            "o",
            "of an identity the newest instance alone acts, and its database decides",
            _plan(
                {"dual": 4, "job": 1, "terminator": 1},
                {**CRASHES, "client crash": 1.0, "delays": 0.3},
                transactions_min=150,
                crashes_min=10,
            ),
            _provoked("o fenced", "o completed", "o sequences", "o terminated", "o by hand"),
        ),
        Family(
            "p",
            "a partition of a group has one owner, whose acks alone count; inputs keep their order",
            _plan(
                {"atomic": 2, "member": 4},
                {**CRASHES, "client crash": 2.0, "partition": 1.0, "half-open": 0.5, "delays": 0.3},
                transactions_min=250,
                crashes_min=15,
            ),
            lambda world: (
                world.provoked["p fenced"] > 0
                and any(one.counts["refused"] for one in world.listeners.groups.values())
            ),
        ),
        Family(
            "q",
            "a key has one consumer at a time, until what it has of it is settled, and its order",
            _plan(
                {"atomic": 2, "plain": 1, "worker": 4, "consumer": 2},
                {**CRASHES, "client crash": 2.0, "link": 1.0, "half-open": 0.5, "delays": 0.3},
                worker_type="key_shared",
                broker_settings={"key_shared_waiting_max": 20},
                transactions_min=150,
                crashes_min=10,
            ),
            lambda world: (
                world.key_order.counts["moves of keys"] > 20
                and world.key_order.counts["beside a pending ack"] > 0
            ),
        ),
    )
}


def make_world(rule: str, seed: int, *, out: object = None) -> World:
    """A world of one family."""
    family = FAMILIES[rule]
    name = f"family {rule} {seed}"
    plan = family.plan(Random(name))
    plan.broker_count = Random(f"brokers of {name}").choice((1, 1, 1, 2, 3))
    world = World(name, plan=plan, out=out)  # type: ignore[arg-type]
    family.prepare(world)
    world.occurred = lambda: family.occurred(world)
    return world
