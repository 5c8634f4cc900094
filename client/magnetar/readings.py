"""Reading without a subscription: ranges of offsets, and consistent cuts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from magnetar.arguments import checked
from magnetar.cuts.cut import Cut, range_of
from magnetar.cuts.taking import CutTaker
from magnetar.errors import ClientClosed
from magnetar.habits import KnowsHabits
from magnetar.link.cluster import Cluster
from magnetar.link.topic_route import TopicRoute
from magnetar.link.unanswered import copy_error
from magnetar.message import Message, MessageColumns
from magnetar.messaging.receiving.read_ahead import read_ahead
from magnetar.messaging.receiving.reader import read_columns
from magnetar.messaging.receiving.several_readings import in_turn, side_by_side
from magnetar_core.cuts.cuts import CutRange
from magnetar_core.errors import Gone, InvalidArgument


class Readings(KnowsHabits):
    """Reads of a client without a subscription."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._runtime = cluster.runtime

    def _require_open(self) -> None:
        self._runtime.require_loop()
        if self._runtime.is_closing:
            raise ClientClosed("the client is closed")
        if self._runtime.failure is not None:
            raise copy_error(self._runtime.failure)

    @checked
    async def read(
        self,
        topic: str,
        partition: int | None = None,
        start: int = 0,
        end: int | None = None,
        *,
        follow_period_s: float | None = None,
        at: Cut | str | None = None,
        since: Cut | str | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Yield committed messages of a topic or a partition, without a subscription.

        Args:
            topic: the topic's name.
            partition: the partition's number; None: all partitions. They come one after the other,
                and with follow_period_s as messages arrive. The messages of each are in order.
            start: the first offset to read, of the partition that is named.
            end: the offset at which to stop; None: the end of the partition when the reader gets
                there.
            follow_period_s: wait for further messages at the end, and ask for them this often, in
                seconds.
            at: a cut, or its token: only what the cut has, from its first offset on.
            since: an earlier cut, or its token: only what that one has not.
        Raises:
            TopicNotFound: there is no such topic, or a cut was taken without it.
            OutOfRange: retention has removed the message at `start`, or some messages of the cut.
            Gone: the cut's topic was deleted.
            InvalidArgument: a token is damaged, the cuts do not fit, or there are offsets and no
                partition.
        """
        pieces = self.read_columns(
            topic, partition, start, end, follow_period_s=follow_period_s, at=at, since=since
        )
        # A caller that stops in the middle ends the reading behind it, too.
        async with aclosing(pieces):
            async for columns in pieces:
                for message in columns:
                    yield message

    @checked
    async def read_columns(
        self,
        topic: str,
        partition: int | None = None,
        start: int = 0,
        end: int | None = None,
        *,
        follow_period_s: float | None = None,
        messages_max: int = 10_000,
        bytes_max: int = 4 << 20,
        at: Cut | str | None = None,
        since: Cut | str | None = None,
    ) -> AsyncGenerator[MessageColumns, None]:
        """Do the same as read, without an object for each message: for bulk work."""
        self._require_open()
        route = await self._cluster.route(topic)
        if partition is None and route.partition_count > 1:
            if start or end is not None:
                raise InvalidArgument(
                    f"{topic} has {route.partition_count} partitions, each with its own offsets:"
                    " name the partition that start and end are meant for"
                )
            readings = [
                self.read_columns(
                    topic,
                    number,
                    follow_period_s=follow_period_s,
                    messages_max=messages_max,
                    bytes_max=bytes_max,
                    at=at,
                    since=since,
                )
                for number in range(route.partition_count)
            ]
            join = in_turn if follow_period_s is None else side_by_side
            async with aclosing(join(readings)) as pieces:
                async for columns in pieces:
                    yield columns
            return
        partition = partition or 0
        cut: CutRange | None = None
        cluster_id = self._runtime.cluster.cluster_id
        chosen = range_of(at, since, topic, partition, cluster_id=cluster_id)
        if chosen is not None:
            if follow_period_s is not None:
                raise InvalidArgument("a cut has an end: nothing follows")
            cut, topic_id = chosen
            _require_id(route, topic_id)
            start, end = max(start, cut.start), cut.end if end is None else min(end, cut.end)
        pieces = read_columns(
            route,
            partition,
            start,
            end,
            follow_period_s=follow_period_s,
            messages_max=messages_max,
            bytes_max=bytes_max,
            cut=cut,
        )
        async with aclosing(pieces):
            async for columns in pieces:
                yield columns

    @checked
    async def read_ahead(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        topic_id: int = 0,
        cut: CutRange | None = None,
    ) -> AsyncGenerator[list[MessageColumns], None]:
        """Yield the messages of a range in bulk; see magnetar.messaging.receiving.read_ahead.

        Args:
            topic_id: the id of the topic; 0: any topic that has the name now.
            cut: what a cut takes of the partition, as magnetar_core.cuts.cuts.range_at says; None:
                everything.
        Raises:
            Gone: the topic of that name has another id.
            OutOfRange: retention has removed some messages of the cut.
        """
        self._require_open()
        route = await self._cluster.route(topic)
        _require_id(route, topic_id)
        async with aclosing(read_ahead(route, partition, start, end, cut=cut)) as pieces:
            async for columns in pieces:
                yield columns

    @checked
    async def cut(self, topics: str | Sequence[str], *, timeout_s: float = 60.0) -> Cut:
        """Take a consistent cut: one moment over all partitions of topics.

        Every transaction is in it as a whole, or not at all; everything whose commit was answered
        before is in it. It delays no other client. Give it, or its token, to read().

        Args:
            topics: one or several that exist.
            timeout_s: how long to wait for commits that are decided and not finished.
        Raises:
            TopicNotFound: one of the topics does not exist.
            CutUnfinished: commits do not finish in time; the error names them.
            LogUnavailable: a coordinator, or a broker of a partition, does not answer.
            InvalidArgument: no topics, or more than 10,000 partitions.
        Source: docs/design/0015-cuts.md.
        """
        self._require_open()
        names = list(dict.fromkeys([topics] if isinstance(topics, str) else topics))
        if not names:
            raise InvalidArgument("a cut is taken of topics: name one at least")
        return await CutTaker(self._cluster, names, timeout_s).take()


def _require_id(route: TopicRoute, topic_id: int) -> None:
    """Check that a topic has an id; 0: any."""
    if topic_id not in (0, route.topic_id):
        raise Gone(
            f"topic {route.topic!r} of id {topic_id} was deleted; it has id {route.topic_id}"
        )
