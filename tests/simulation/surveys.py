"""Consistent cuts that clients take beside everything else, and what must hold of them.

Each cut is read at once, and some again later. When the run is over and every message is known,
each cut must have whole transactions only, everything that was decided before, and all plain
messages below its ends.
Source: docs/design/0015-cuts.md, Promise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.history import History, Place

import magnetar
from magnetar_core.errors import OutOfRange
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2

if TYPE_CHECKING:
    from tests.simulation.world import World

TIMEOUT_S = 5.0
# A partition and an offset there.
Position = tuple[Place, int]
# The transactions of messages; None: plain.
Messages = dict[Position, TxnID | None]


@dataclass(frozen=True)
class SeenCut:
    """A cut that was taken and read.

    Attributes:
        messages: what it has.
        decided: commits that somebody had been told of when it was asked for.
    """

    cut: magnetar.Cut
    messages: Messages
    decided: frozenset[TxnID]

    def ranges(self) -> Mapping[Place, tuple[int, int]]:
        """The first offset of each partition, and its end."""
        return {
            (topic, number): (one.first_offset, one.end_offset)
            for topic, taken in self.cut.taken.topics.items()
            for number, one in enumerate(taken.partitions)
        }


async def take_and_read(world: World, client: magnetar.Client, random: Random) -> None:
    """Take a cut and read it; read it or an earlier one again."""
    history = world.history
    topics = random.sample(sorted(world.script.topics), random.randint(1, len(world.script.topics)))
    decided = frozenset(
        txn_id
        for txn_id, txn in history.transactions.items()
        if txn.decision == common_pb2.COMMIT and txn.decision_told_at is not None
    )
    # Cuts that are taken at the same time have no order.
    before = list(world.cuts)
    cut = await client.cut(topics, timeout_s=TIMEOUT_S)
    history.counts["cuts"] += 1
    if random.random() < 0.5:
        # Whatever happens meanwhile: a token is the same cut.
        await asyncio.sleep(random.uniform(0.0, 0.5))
        cut = magnetar.Cut.parse(str(cut))
    try:
        seen = SeenCut(cut, await _read(world, client, cut), decided)
    except OutOfRange:
        if not _may_trim(world):
            raise
        return
    world.cuts.append(seen)
    earlier = random.choice(world.cuts)
    has_order = any(earlier is one for one in (*before, seen))
    if random.random() < 0.5 and has_order and _are_of_one_life(earlier.cut, cut):
        await _read_again(world, client, earlier, seen)


def _may_trim(world: World) -> bool:
    return bool(world.script.settings["topic"])


def _are_of_one_life(earlier: magnetar.Cut, later: magnetar.Cut) -> bool:
    """Whether all that the later cut has can be read from the earlier one on."""
    before, after = earlier.taken, later.taken
    return all(
        topic in before.topics
        and [one.ledger_id for one in before.topics[topic].partitions]
        == [one.ledger_id for one in taken.partitions]
        for topic, taken in after.topics.items()
    )


async def _read_again(
    world: World, client: magnetar.Client, earlier: SeenCut, later: SeenCut
) -> None:
    history = world.history
    try:
        again = await _read(world, client, earlier.cut)
        between = await _read(world, client, later.cut, since=earlier.cut)
    except OutOfRange:
        if not _may_trim(world):
            raise
        return
    if again != earlier.messages:
        difference = again.keys() ^ earlier.messages.keys()
        history.violation("cut", f"a cut has changed: {sorted(difference)[:3]}")
    twice = between.keys() & earlier.messages.keys()
    if twice:
        history.violation("cut", f"what an earlier cut had comes again: {sorted(twice)[:3]}")
    ranges = later.ranges()
    together = {
        position
        for position in between.keys() | earlier.messages.keys()
        # What was there at the earlier cut may have gone before the later one.
        if position[0] in ranges and position[1] >= ranges[position[0]][0]
    }
    if together != later.messages.keys():
        difference = together ^ later.messages.keys()
        history.violation("cut", f"from cut to cut it is not the same: {sorted(difference)[:3]}")
    world.provoked["cut read again"] += 1


async def _read(
    world: World, client: magnetar.Client, at: magnetar.Cut, since: magnetar.Cut | None = None
) -> Messages:
    found: Messages = {}
    for topic in at.topics:
        for number in range(at.partition_count(topic)):
            async for message in client.read(topic, number, at=at, since=since):
                world.saw(message)
                position = ((topic, number), message.offset)
                if position in found:
                    world.history.violation("cut", f"{position} comes twice")
                found[position] = message.txn_id
    return found


def check_cuts(history: History, cuts: list[SeenCut]) -> None:
    """Check all cuts against what is there now that everything has come to rest."""
    of_txn: dict[TxnID, set[Position]] = {}
    plain: list[Position] = []
    for position, txn_id in history.seen_txn.items():
        if txn_id is None:
            plain.append(position)
        else:
            of_txn.setdefault(txn_id, set()).add(position)
    # Damaged messages that an administrator has given up are in no cut.
    given_up = {
        (place, offset) for place, offsets in history.given_up.items() for offset in offsets
    }
    for seen in cuts:
        ranges = seen.ranges()
        taken = frozenset(txn_id for txn_id in seen.messages.values() if txn_id is not None)
        for txn_id in taken | seen.decided:
            missing = {
                (place, offset)
                for place, offset in of_txn.get(txn_id, ())
                # Retention had removed what lies before.
                if place in ranges and offset >= ranges[place][0]
            }
            missing -= seen.messages.keys() | given_up
            if missing:
                what = "is torn in a cut" if txn_id in taken else "was decided before a cut"
                history.violation("cut", f"{txn_id} {what}: {sorted(missing)[:3]} is missing")
        for place, offset in plain:
            if (place, offset) in given_up:
                continue
            first, end = ranges.get(place, (0, 0))
            if first <= offset < end and (place, offset) not in seen.messages:
                history.violation("cut", f"a cut has no plain message {place} {offset}")
