"""Transfers between accounts under faults, and an auditor who reads cuts.

Writers move money between partitions of two topics, so that the sum of everything is always zero;
in between they read what others wrote, and send plain messages. The auditor takes cuts, and checks
what docs/design/0015-cuts.md promises: each transaction whole, everything that was answered, causes
with their effects, the same set whenever it is read, and each message once from cut to cut.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from tests.client.cuts.cluster import BROKERS, COORDINATORS, Cluster
from tests.virtual_time import time_passes

from magnetar import Client, Cut, Producer
from magnetar.cuts.taking import CutTaker, Offsets
from magnetar_core.errors import MagnetarError

TOPICS = ("accounts", "savings")
PARTITIONS = 4
WRITERS = 4
FAULTS = ("crash", "crash", "clock", "hold-up", "link", "copies", "delays")
FAULT_PERIOD_S = 0.4
# The first client that connects.
AUDITOR = "sdk-1"


class Place(NamedTuple):
    topic: str
    partition: int


class Entry(NamedTuple):
    """A message that was read: where it was, and its text.

    The text of a transfer's message: its number, how many messages it has, the amount.
    The text of a plain message: "plain", its writer, its number there.
    """

    place: Place
    offset: int
    text: str

    @property
    def transfer(self) -> int | None:
        first = self.text.split()[0]
        return None if first == "plain" else int(first)


@dataclass
class History:
    """What the writers know.

    Attributes:
        committed: transfers whose commit was answered.
        causes: of each transfer: those that its writer had heard of when it was committed.
        sent: plain messages that were confirmed, by writer and place.
    """

    committed: set[int] = field(default_factory=set)
    causes: dict[int, frozenset[int]] = field(default_factory=dict)
    sent: Counter[tuple[int, Place]] = field(default_factory=Counter)
    transfer_count: int = 0


class Violation(AssertionError):
    """A cut is not what it promises."""


class Writer:
    """One process that writes."""

    def __init__(self, number: int, cluster: Cluster, client: Client, history: History) -> None:
        self._number = number
        self._cluster = cluster
        self._client = client
        self._history = history
        self._random = Random(f"{cluster.seed}/writer/{number}")
        self._seen: set[int] = set()
        self._plain_numbers: Counter[Place] = Counter()

    async def run(self) -> None:
        producers = {topic: await self._client.create_producer(topic) for topic in TOPICS}
        while True:
            try:
                await self._transfer(producers)
                if self._random.random() < 0.5:
                    await self._look(self._place())
                if self._random.random() < 0.3:
                    await self._send_plain(producers, self._place())
            except MagnetarError:
                await time_passes(0.05)
            await time_passes(self._random.expovariate(20.0))

    def _place(self) -> Place:
        return Place(self._random.choice(TOPICS), self._random.randrange(PARTITIONS))

    async def _transfer(self, producers: dict[str, Producer]) -> None:
        history, random = self._history, self._random
        history.transfer_count += 1
        transfer = history.transfer_count
        places = sorted({self._place() for _ in range(random.randrange(2, 5))})
        amounts = [random.randrange(-99, 99) for _ in places[1:]]
        amounts.append(-sum(amounts))
        txn = await self._client.begin_transaction()
        for place, amount in zip(places, amounts, strict=True):
            text = f"{transfer} {len(places)} {amount}"
            await producers[place.topic].send(text.encode(), partition=place.partition, txn=txn)
        if random.random() < 0.3:
            # What is read while the transaction is open is a cause, too.
            await self._look(self._place())
        if random.random() < 0.1:
            await txn.abort()
            return
        history.causes[transfer] = frozenset(self._seen)
        await txn.commit()
        self._seen.add(transfer)
        history.committed.add(transfer)

    async def _look(self, place: Place) -> None:
        offsets = await self._client.admin.topics.list_offsets(
            place.topic, partitions=[place.partition]
        )
        end = offsets.partitions[0].end_offset
        start = max(0, end - 20)
        async for message in self._client.read(place.topic, place.partition, start, end):
            transfer = Entry(place, message.offset, message.value.decode()).transfer
            if transfer is not None:
                self._seen.add(transfer)

    async def _send_plain(self, producers: dict[str, Producer], place: Place) -> None:
        # Counted when it is begun: what fails may have been stored.
        self._plain_numbers[place] += 1
        text = f"plain {self._number} {self._plain_numbers[place]}"
        await producers[place.topic].send(text.encode(), partition=place.partition)
        self._history.sent[self._number, place] = self._plain_numbers[place]


class Auditor:
    """Takes cuts, and checks them."""

    def __init__(self, cluster: Cluster, client: Client, history: History, faults: Faults) -> None:
        self._cluster = cluster
        self._client = client
        self._history = history
        self._faults = faults
        self._random = Random(f"{cluster.seed}/auditor")
        # What each cut had, when it was read first.
        self.cuts: list[tuple[Cut, set[Entry]]] = []
        self.left_out = 0

    async def run(self, count: int) -> None:
        while len(self.cuts) < count:
            answered = set(self._history.committed)
            confirmed = Counter(self._history.sent)
            try:
                cut = await _StruckTaker(self._client, self._faults).take()
                entries = await self._read(cut)
                earlier = self._random.choice(self.cuts) if self.cuts else None
                between = None if earlier is None else await self._read(cut, earlier[0])
                again = None if earlier is None else await self._read(earlier[0])
            except MagnetarError:
                await time_passes(0.1)
                continue
            self._check_whole(entries)
            self._check_answered(entries, answered)
            self._check_causes(entries)
            self._check_plain(entries, confirmed)
            if earlier is not None and between is not None:
                _same(again, earlier[1], "an earlier cut has changed")
                _same(between & earlier[1], set(), "what an earlier cut had comes again")
                _same(between | earlier[1], entries, "from cut to cut something is missing")
            self.cuts.append((Cut.parse(str(cut)), entries))
            self._count_left_out(cut)
            await time_passes(self._random.uniform(0.0, 0.5))

    async def _read(self, at: Cut, since: Cut | None = None) -> set[Entry]:
        found: list[Entry] = []
        for topic in TOPICS:
            for number in range(PARTITIONS):
                async for message in self._client.read(topic, number, at=at, since=since):
                    text = message.value.decode()
                    found.append(Entry(Place(topic, number), message.offset, text))
        entries = set(found)
        if len(entries) != len(found):
            raise Violation("a message came twice")
        return entries

    def _check_whole(self, entries: set[Entry]) -> None:
        parts: Counter[int] = Counter()
        total = 0
        for entry in entries:
            if entry.transfer is not None:
                parts[entry.transfer] += 1
                total += int(entry.text.split()[2])
        for one in entries:
            if one.transfer is not None and parts[one.transfer] != int(one.text.split()[1]):
                raise Violation(f"transfer {one.transfer} is torn")
        if total:
            raise Violation(f"the sum is {total}")

    def _check_answered(self, entries: set[Entry], answered: set[int]) -> None:
        missing = answered - {entry.transfer for entry in entries}
        if missing:
            raise Violation(f"answered before, and not there: {sorted(missing)[:5]}")

    def _check_causes(self, entries: set[Entry]) -> None:
        there = {entry.transfer for entry in entries}
        for transfer in there:
            if transfer is not None:
                missing = self._history.causes[transfer] - there
                if missing:
                    raise Violation(f"{transfer} is there without {sorted(missing)[:5]}")

    def _check_plain(self, entries: set[Entry], confirmed: Counter[tuple[int, Place]]) -> None:
        """Of each writer and place a prefix, with all that was confirmed before."""
        numbers: dict[tuple[int, Place], list[tuple[int, int]]] = {}
        for entry in entries:
            if entry.transfer is None:
                _, writer, number = entry.text.split()
                numbers.setdefault((int(writer), entry.place), []).append(
                    (entry.offset, int(number))
                )
        for key, found in numbers.items():
            in_order = [number for _, number in sorted(found)]
            if in_order != sorted(set(in_order)):
                raise Violation(f"plain messages of {key} are out of order: {in_order}")
        for key, last in confirmed.items():
            if last not in [number for _, number in numbers.get(key, ())]:
                raise Violation(f"the plain message {last} of {key} was confirmed, and is missing")

    def _count_left_out(self, cut: Cut) -> None:
        """Count where it mattered: partitions that went on while the cut was taken."""
        for topic in TOPICS:
            for number in range(PARTITIONS):
                at = cut.taken.partition(topic, number)
                self.left_out += at.begun_offset < at.end_offset


def _same(found: set[Entry] | None, expected: set[Entry], complaint: str) -> None:
    if found != expected:
        difference = sorted((found or set()) ^ expected)
        raise Violation(f"{complaint}: {difference[:5]}")


class _StruckTaker(CutTaker):
    """Takes a cut, with faults at its most sensitive moment."""

    def __init__(self, client: Client, faults: Faults) -> None:
        super().__init__(client._cluster, TOPICS, 60.0)
        self._faults = faults
        self._looks = 0

    async def _offsets(self) -> Mapping[str, Offsets]:
        self._looks += 1
        if self._looks % 2 == 0:
            self._faults.past_is_closed()
        return await super()._offsets()


class Faults:
    """What goes wrong meanwhile, but for losses of disks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._random = Random(f"{cluster.seed}/faults")

    def past_is_closed(self) -> None:
        """Often a coordinator restarts just then, with a clock that is set back.

        Meanwhile the auditor hears of one broker's ends later than of the other's.
        """
        random = self._random
        if random.random() < 0.4:
            return
        node = random.choice(self._cluster.coordinators)
        node.clock.wall_offset_ms -= random.choice([0, 500, 60_000])
        node.crash(power_loss=random.random() < 0.7)
        self._cluster.network.hold_up(AUDITOR, random.choice(BROKERS), random.uniform(0.0, 1.5))

    async def run(self) -> None:
        random, network = self._random, self._cluster.network
        for node in self._cluster.nodes:
            node.restarts = True
            node.restart_seconds_max = 0.5
        while True:
            await time_passes(random.expovariate(1 / FAULT_PERIOD_S))
            match random.choice(FAULTS):
                case "crash":
                    random.choice(self._cluster.nodes).crash(power_loss=random.random() < 0.7)
                case "clock":
                    node = random.choice(self._cluster.coordinators)
                    node.clock.wall_offset_ms += random.choice([-60_000, -500, 500, 60_000])
                case "hold-up":
                    seconds = random.uniform(0.0, 2.0)
                    network.hold_up(random.choice(COORDINATORS), random.choice(BROKERS), seconds)
                case "link":
                    links = network.links()
                    if links:
                        network.break_link(random.choice(links))
                case "copies":
                    for _ in range(10):
                        network.duplicate()
                case "delays":
                    network.delay_spike(random.choice([3.0, 30.0]), random.uniform(0.0, 0.5))


async def audited(cluster: Cluster, client: Client, *, cuts: int) -> Auditor:
    """Write and audit until so many cuts were checked.

    Raises:
        Violation: a cut is not what it promises.
    """
    for topic in TOPICS:
        await client.admin.topics.create(topic, partitions=PARTITIONS)
    history = History()
    faults = Faults(cluster)
    auditor = Auditor(cluster, client, history, faults)
    writers = [
        Writer(number, cluster, await cluster.connect(), history) for number in range(WRITERS)
    ]
    background = [asyncio.ensure_future(writer.run()) for writer in writers]
    background.append(asyncio.ensure_future(faults.run()))
    auditing = asyncio.ensure_future(auditor.run(cuts))
    done, _ = await asyncio.wait(
        [auditing, *background], timeout=1_000, return_when=asyncio.FIRST_COMPLETED
    )
    for task in (auditing, *background):
        task.cancel()
    await asyncio.gather(auditing, *background, return_exceptions=True)
    for task in done:
        task.result()
    assert auditing in done, "it takes too long"
    return auditor
