"""What a cut takes of a partition, and what lies between two cuts; tokens keep all of it.

Source: docs/design/0015-cuts.md.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_core.cuts import cut_token
from magnetar_core.cuts.cuts import Cut, CutRange, PartitionCut, TopicCut, range_at, range_between
from magnetar_core.errors import InvalidArgument, TopicNotFound, UnsupportedVersion
from magnetar_core.wire import cut_pb2

uint64s = st.integers(0, (1 << 64) - 1)


@st.composite
def partition_cuts(draw: st.DrawFn) -> PartitionCut:
    first, begun, end = sorted(draw(st.tuples(uint64s, uint64s, uint64s)))
    return PartitionCut(draw(uint64s), first, begun, end)


cuts = st.builds(
    Cut,
    st.text(max_size=10),
    uint64s,
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=10),
        st.builds(TopicCut, uint64s, st.lists(partition_cuts(), min_size=1, max_size=4).map(tuple)),
        min_size=1,
        max_size=4,
    ),
)


def cut_of(stamp: int, *partitions: tuple[int, int, int], ledger_id: int = 1) -> Cut:
    some = tuple(PartitionCut(ledger_id, *partition) for partition in partitions)
    return Cut("c", stamp, {"t": TopicCut(7, some)})


# Reading.


def test_a_cut_takes_what_lies_below_its_end_and_has_no_higher_stamp() -> None:
    read = range_at(cut_of(50, (10, 20, 30)), "t", 0)
    assert (read.start, read.end) == (10, 30)
    assert read.takes(10, 0)
    assert read.takes(29, 50)
    assert not read.takes(9, 0)
    assert not read.takes(30, 0)
    assert not read.takes(29, 51)


def test_between_two_cuts_lies_what_came_and_what_was_left_out_before() -> None:
    read = range_between(cut_of(50, (10, 20, 30)), cut_of(60, (10, 35, 40)), "t", 0)
    assert (read.start, read.end) == (20, 40)
    assert not read.takes(25, 0)  # A plain message of the earlier cut.
    assert not read.takes(25, 50)
    assert read.takes(25, 51)
    assert read.takes(30, 0)
    assert read.takes(30, 60)
    assert not read.takes(30, 61)
    assert not read.takes(25, 61)


def test_two_cuts_must_be_of_the_same_partition_in_their_order() -> None:
    earlier, later = cut_of(50, (0, 20, 30)), cut_of(60, (0, 35, 40))
    for one, other, reason in (
        (later, earlier, "later than"),
        (earlier, later._replace(cluster_id="d"), "different clusters"),
        (earlier, later._replace(topics={"t": TopicCut(8, later.topic("t").partitions)}), "again"),
        (earlier, cut_of(60, (0, 35, 40), ledger_id=2), "restored"),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            range_between(one, other, "t", 0)
    range_between(earlier._replace(cluster_id=""), later, "t", 0)
    with pytest.raises(TopicNotFound, match="'u'"):
        range_between(earlier, later, "u", 0)
    with pytest.raises(InvalidArgument, match="no partition 1"):
        range_at(earlier, "t", 1)


@given(st.integers(0, 1 << 32))
def test_cuts_of_a_history_are_whole_and_add_up(seed: int) -> None:
    """A model: two coordinators decide, markers come later, cuts are taken step by step."""
    history = _History(Random(seed))
    for _ in range(200):
        history.step()
    history.finish()
    assert len(history.cuts) > 1
    seen: set[tuple[int, int]] = set()
    earlier: Cut | None = None
    for cut in history.cuts:
        whole = history.messages(partial(range_at, cut, "t"))
        history.check_whole(whole)
        history.check_answered(cut, whole)
        added = whole
        if earlier is not None:
            added = history.messages(partial(range_between, earlier, cut, "t"))
        assert not seen & added
        seen |= added
        assert seen == whole
        earlier = cut


class _History:
    """Partitions with plain entries and markers, and coordinators with commits under way."""

    def __init__(self, random: Random) -> None:
        self.random = random
        # Of each partition: stamp and transaction of each entry; 0, 0 of a plain one.
        self.logs: list[list[tuple[int, int]]] = [[], [], []]
        self.clocks = [0, random.randrange(50)]
        # Commits under way: coordinator, transaction, stamp, partitions without a marker.
        self.unfinished: list[tuple[int, int, int, list[int]]] = []
        self.partitions_of: dict[int, int] = {}
        # The highest transaction that was decided before each cut was asked for.
        self.asked: dict[int, int] = {}
        self.cuts: list[Cut] = []
        self._taking = self._take_cuts()

    def step(self) -> None:
        self.random.choice([self._append_plain, self._decide, self._mark, self._go_on])()

    def _append_plain(self) -> None:
        self.random.choice(self.logs).append((0, 0))

    def _decide(self) -> None:
        tcid = self.random.randrange(2)
        self.clocks[tcid] += self.random.randrange(1, 4)
        txn = len(self.partitions_of) + 1
        places = self.random.sample(range(3), self.random.randrange(1, 4))
        self.partitions_of[txn] = len(places)
        self.unfinished.append((tcid, txn, self.clocks[tcid], places))

    def _mark(self) -> None:
        if self.unfinished:
            one = self.random.choice(self.unfinished)
            self.logs[one[3].pop()].append((one[2], one[1]))
            if not one[3]:
                self.unfinished.remove(one)

    def _go_on(self) -> None:
        next(self._taking)

    def _take_cuts(self) -> Iterator[None]:
        while True:
            asked = len(self.partitions_of)
            begun, highest = [], [0]
            for log in self.logs:
                begun.append(len(log))
                highest += [stamp for stamp, _ in log]
                yield
            stamp = max(highest)
            for clock in self.clocks:
                stamp = max(stamp, clock)
                yield
            for tcid in range(2):
                self.clocks[tcid] = max(self.clocks[tcid], stamp)
                while any(one[0] == tcid and one[2] <= stamp for one in self.unfinished):
                    yield
            ends = []
            for log in self.logs:
                ends.append(len(log))
                yield
            self.asked[len(self.cuts)] = asked
            self.cuts.append(cut_of(stamp, *((0, b, e) for b, e in zip(begun, ends, strict=True))))

    def finish(self) -> None:
        count = len(self.cuts) + 2
        while len(self.cuts) < count:
            self._mark()
            next(self._taking)

    def messages(self, range_of: Callable[[int], CutRange]) -> set[tuple[int, int]]:
        return {
            (number, offset)
            for number, log in enumerate(self.logs)
            for offset, (stamp, _) in enumerate(log)
            if range_of(number).takes(offset, stamp)
        }

    def check_whole(self, messages: set[tuple[int, int]]) -> None:
        parts: dict[int, int] = {}
        for number, offset in messages:
            txn = self.logs[number][offset][1]
            parts[txn] = parts.get(txn, 0) + 1
        for txn, count in parts.items():
            assert not txn or count == self.partitions_of[txn]

    def check_answered(self, cut: Cut, messages: set[tuple[int, int]]) -> None:
        there = {self.logs[number][offset][1] for number, offset in messages}
        asked = self.asked[self.cuts.index(cut)]
        assert there >= set(range(1, asked + 1))


# Tokens.


@given(cuts)
def test_a_token_keeps_the_cut(cut: Cut) -> None:
    text = cut_token.to_text(cut)
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text
    assert cut_token.parse(f" {text}\n") == cut


@given(cuts, st.data())
def test_a_damaged_token_is_refused(cut: Cut, data: st.DataObject) -> None:
    text = cut_token.to_text(cut)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("Aa0-_=. \n\u00e9"))
    damaged = data.draw(st.sampled_from([text[:at], text[:at] + other + text[at + 1 :]]))
    try:
        assert cut_token.parse(damaged) == cut
    except (InvalidArgument, UnsupportedVersion):
        pass


@given(st.text(max_size=50) | st.from_regex(r"cut1-[A-Za-z0-9_-]{0,60}", fullmatch=True))
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises((InvalidArgument, UnsupportedVersion)):
        cut_token.parse(text)


def test_a_later_versions_token_asks_for_an_upgrade() -> None:
    with pytest.raises(UnsupportedVersion, match="upgrade"):
        cut_token.parse("cut2-AAAA")
    with pytest.raises(InvalidArgument, match="version 0"):
        cut_token.parse("cut0-AAAA")


def _token_of(wire: cut_pb2.CutToken | bytes) -> str:
    body = wire if isinstance(wire, bytes) else wire.SerializeToString()
    data = google_crc32c.value(body).to_bytes(4) + body
    return "cut1-" + base64.urlsafe_b64encode(data).decode().rstrip("=")


@pytest.mark.parametrize(
    "wire",
    [
        b"",
        b"\xff\xff\xff",
        cut_pb2.CutToken(topics=[cut_pb2.CutTopic(topic="t")]),
        cut_pb2.CutToken(topics=[cut_pb2.CutTopic(partitions=[cut_pb2.CutPartition()])]),
        cut_pb2.CutToken(
            topics=[cut_pb2.CutTopic(topic="t", partitions=[cut_pb2.CutPartition()])] * 2
        ),
        *(
            cut_pb2.CutToken(
                topics=[
                    cut_pb2.CutTopic(
                        topic="t",
                        partitions=[
                            cut_pb2.CutPartition(
                                first_offset=first, begun_offset=begun, end_offset=end
                            )
                        ],
                    )
                ]
            )
            for first, begun, end in ((2, 1, 3), (1, 4, 3))
        ),
    ],
)
def test_a_whole_token_with_a_foreign_content_is_refused(wire: cut_pb2.CutToken | bytes) -> None:
    with pytest.raises(InvalidArgument, match="damaged"):
        cut_token.parse(_token_of(wire))


def test_tokens_have_a_largest_size() -> None:
    with pytest.raises(InvalidArgument, match="at most"):
        cut_token.parse("cut1-" + "A" * cut_token.TOKEN_CHARACTERS_MAX)
    many = cut_of(1, *[(0, 0, 0)] * (cut_token.PARTITIONS_MAX + 1))
    with pytest.raises(InvalidArgument, match="fewer topics"):
        cut_token.to_text(many)
    most = cut_of(1, *[(1 << 60, 1 << 61, 1 << 62)] * cut_token.PARTITIONS_MAX)
    assert cut_token.parse(cut_token.to_text(most)) == most
