"""Takes a consistent cut: closes the past at all coordinators, between two looks at the offsets.

Source: docs/design/0015-cuts.md, Taking a cut.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from magnetar.cuts.cut import Cut
from magnetar.errors import CutUnfinished
from magnetar.link.cluster import Cluster
from magnetar.link.connection_base import ConnectionBase
from magnetar.link.whole_topics import all_of, ask_partitions
from magnetar_core.cuts import cuts
from magnetar_core.cuts.cut_token import PARTITIONS_MAX
from magnetar_core.cuts.cuts import PartitionCut, TopicCut
from magnetar_core.errors import InvalidArgument, LogUnavailable, MagnetarError, QuotaExceeded
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, transaction_pb2

log = logging.getLogger("magnetar")

# How long a coordinator keeps a question: a lost answer delays a cut by this at most.
WAIT_MS = 5_000
# How long an answer may take when the time is up.
ANSWER_MS = 5_000
NAMED_MAX = 10

# The id of a topic, and its partitions' offsets.
Offsets = tuple[int, list[broker_pb2.PartitionOffsets]]
Clocks = dict[int, transaction_pb2.CommandCloseCutResponse]
Ask = Callable[[ConnectionBase], Coroutine[Any, Any, transaction_pb2.CommandCloseCutResponse]]


class CutTaker:
    """Takes a cut of topics.

    Args:
        timeout_s: how long to try, in seconds.
    """

    def __init__(self, cluster: Cluster, topics: Sequence[str], timeout_s: float) -> None:
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._topics = topics
        self._deadline_ms = self._runtime.now_ms() + timeout_s * 1_000

    async def take(self) -> Cut:
        """Take it; see Client.cut."""
        backoff = self._runtime.backoff()
        while True:
            cut = await self._try()
            if cut is not None:
                return cut
            delay_ms = backoff.next_ms()
            if self._remaining_ms() <= delay_ms:
                raise LogUnavailable(
                    "servers were restored, or their list has changed, while the cut was taken:"
                    " ask again"
                )
            await asyncio.sleep(delay_ms / 1_000)

    def _remaining_ms(self) -> float:
        return self._deadline_ms - self._runtime.now_ms()

    async def _try(self) -> Cut | None:
        """Take a cut, or return None if the cluster changed meanwhile.

        The order of the steps makes the cut consistent.
        """
        # A store that is lost from here on is seen in the end. Otherwise neither partitions nor
        # clocks might tell the stamp of a commit whose markers come after the first look.
        met = await self._ask_all(partial(self._close, stamp=0))
        begun = await self._offsets()
        clocks = await self._ask_all(partial(self._close, stamp=0))
        stamp = max(
            *(one.clock for one in clocks.values()),
            *(one.highest_stamp for _, some in begun.values() for one in some),
        )
        await self._ask_all(partial(self._close_all_of, stamp=stamp))
        ends = await self._offsets()
        again = await self._ask_all(partial(self._close, stamp=stamp))
        if not _incarnations(met) == _incarnations(clocks) == _incarnations(again):
            log.info("a coordinator has lost its store, or joined, while a cut was taken")
            return None
        if not self._runtime.has_latest_members:
            # A broker that was asked for the offsets may have commits of a coordinator that is not
            # yet known to the broker that sent the list.
            log.info("servers have joined, and not every broker knows it yet")
            return None
        topics: dict[str, TopicCut] = {}
        for topic, (topic_id, before) in begun.items():
            end_id, after = ends[topic]
            if topic_id != end_id or _ledgers(before) != _ledgers(after):
                log.info("%s was restored, or got partitions, while a cut was taken", topic)
                return None
            topics[topic] = TopicCut(
                topic_id,
                tuple(
                    PartitionCut(
                        first.ledger_id, first.first_offset, first.end_offset, last.end_offset
                    )
                    for first, last in zip(before, after, strict=True)
                ),
            )
        return Cut(cuts.Cut(self._runtime.cluster.cluster_id, stamp, topics))

    # Brokers.

    async def _offsets(self) -> Mapping[str, Offsets]:
        found = await all_of(self._runtime, self._offsets_of, self._topics)
        if sum(len(some) for _, some in found) > PARTITIONS_MAX:
            raise InvalidArgument(f"a cut takes {PARTITIONS_MAX} partitions at most")
        return dict(zip(self._topics, found, strict=True))

    async def _offsets_of(self, topic: str) -> Offsets:
        reply, offsets = await ask_partitions(
            self._cluster,
            topic,
            (),
            lambda numbers: broker_pb2.CommandListOffsets(topic=topic, partitions=numbers),
        )
        return reply.topic_id, offsets

    # Coordinators.

    async def _ask_all(self, ask: Ask) -> Clocks:
        """Ask all coordinators that are in the list now; return their answers by TCID."""
        await self._cluster.info()
        connections = await self._cluster.coordinators()
        answers = await all_of(self._runtime, ask, connections)
        return {answer.tcid: answer for answer in answers}

    async def _close(
        self, coordinator: ConnectionBase, *, stamp: int, wait_ms: float = 0
    ) -> transaction_pb2.CommandCloseCutResponse:
        try:
            return await coordinator.request(
                transaction_pb2.CommandCloseCut(stamp=stamp, wait_ms=int(wait_ms)),
                timeout_ms=max(0.0, self._remaining_ms()) + ANSWER_MS,
                patient=wait_ms > 0,
            )
        except MagnetarError as error:
            if not error.kind.may_pass:
                raise
            raise LogUnavailable(
                f"the coordinator {coordinator.title} does not answer, and a cut needs all of"
                f" them: {error}"
            ) from error

    async def _close_all_of(
        self, coordinator: ConnectionBase, *, stamp: int
    ) -> transaction_pb2.CommandCloseCutResponse:
        """Close the past of a coordinator, and wait until all of it is finished."""
        backoff = self._runtime.backoff()
        while True:
            wait_ms = min(WAIT_MS, max(0.0, self._remaining_ms()))
            try:
                answer = await self._close(coordinator, stamp=stamp, wait_ms=wait_ms)
            except QuotaExceeded:
                # Many cuts wait there.
                delay_ms = backoff.next_ms()
                if self._remaining_ms() <= delay_ms:
                    raise
                await asyncio.sleep(delay_ms / 1_000)
                continue
            if not answer.unfinished:
                return answer
            if self._remaining_ms() <= 0:
                raise _unfinished(answer)


def _unfinished(answer: transaction_pb2.CommandCloseCutResponse) -> CutUnfinished:
    txn_ids = [str(TxnID.from_wire(one)) for one in answer.unfinished]
    more = " and others" if answer.truncated or len(txn_ids) > NAMED_MAX else ""
    return CutUnfinished(
        f"the cut waits for {', '.join(txn_ids[:NAMED_MAX])}{more}, decided and not finished:"
        " `magnetar transactions describe` says why",
        txn_ids=" ".join(txn_ids),
    )


def _incarnations(clocks: Clocks) -> dict[int, int]:
    return {tcid: one.incarnation for tcid, one in clocks.items()}


def _ledgers(offsets: Sequence[broker_pb2.PartitionOffsets]) -> list[tuple[int, int]]:
    return [(offset.partition, offset.ledger_id) for offset in offsets]
