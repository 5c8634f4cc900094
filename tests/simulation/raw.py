"""A client that speaks the protocol by hand, and says whatever a test wants said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tests.core.envelope import framed

from magnetar.testing.envelope import Together, command, in_columns, singles
from magnetar_core import batch
from magnetar_core.errors import MagnetarError, from_wire
from magnetar_core.ids import TxnID
from magnetar_core.membership.placement import shard_of
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.transport import Link, LinkClosed, Transport
from magnetar_core.wire import broker_pb2, common_pb2, topic_pb2, transaction_pb2
from magnetar_core.wire import service_pb2 as pb

BROKER = "Broker"
COORDINATOR = "TransactionCoordinator"
TIMEOUT_SECONDS = 3.0
# Between two looks at brokers of which one has not heard the news.
STALE_SECONDS = 0.05
# What names a partition.
_OfPartition = common_pb2.Partition | common_pb2.Subscription


class NoAnswer(Exception):
    """The link broke or stayed silent: the request may have taken effect, or may yet."""


class RawSession:
    """One link to one server."""

    def __init__(self) -> None:
        self.closed = False
        self.link: Link | None = None
        self.on_push: Callable[[pb.Command], None] = lambda _: None
        self._request_count = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._together: Together = {}

    def on_frame(self, frame: Carried) -> None:
        for one in singles(frame, self._together).commands:
            if one.request_id == 0:
                self.on_push(one)
                continue
            future = self._waiting.pop(one.request_id, None)
            if future is not None and not future.done():
                future.set_result(one)

    def on_closed(self) -> None:
        self.closed = True
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(None)

    def post(self, body: Any) -> None:
        """Say something that has no answer."""
        assert self.link is not None
        self.link.write(framed(command(body)))

    async def ask(self, body: Any, *, timeout: float = TIMEOUT_SECONDS) -> Any:
        """Raises: MagnetarError: the server's answer. NoAnswer: none came."""
        (answer,) = await self.ask_together([body], timeout=timeout)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask_together(
        self, bodies: Sequence[Any], *, traceparent: bytes = b"", timeout: float = TIMEOUT_SECONDS
    ) -> list[Any]:
        """Send commands in a frame, and in columns if they have any; the answer to each.

        An answer may be a MagnetarError or NoAnswer.

        Args:
            traceparent: what each says of its span.
        """
        if self.closed or self.link is None:
            return [NoAnswer("closed") for _ in bodies]
        loop = asyncio.get_running_loop()
        asked: dict[int, asyncio.Future[Any]] = {}
        for _ in bodies:
            self._request_count += 1
            asked[self._request_count] = loop.create_future()
        self._waiting.update(asked)
        commands = list(map(command, bodies, asked))
        for one in commands:
            one.traceparent = traceparent
        data = in_columns(*commands)
        singles(pb.Frame.FromString(data), self._together)
        self.link.write(data)
        timers = [loop.call_later(timeout, _give_up, one) for one in asked.values()]
        answers: list[Any] = []
        for request_id, future in asked.items():
            answers.append(_answer_in(await future))
            self._waiting.pop(request_id, None)
        for timer in timers:
            timer.cancel()
        return answers


def _answer_in(reply: pb.Command | None) -> Any:
    if reply is None:
        return NoAnswer("no answer came")
    name = reply.WhichOneof("body")
    assert name is not None
    return from_wire(reply.error) if name == "error" else getattr(reply, name)


def _give_up(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


class RawClient:
    """Links to a broker and a coordinator, made when needed and made again when broken."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        addresses: dict[str, str],
        *,
        coordinators: Sequence[str] = (),
        brokers: Sequence[str] = (),
    ) -> None:
        """Args: coordinators, brokers: addresses by TCID and by shard, where there are several."""
        self.name = name
        self._transport = transport
        self._addresses = addresses
        self._coordinators = coordinators
        self._brokers = brokers
        self._sessions: dict[tuple[str, str], RawSession] = {}
        # Of the latest attempt to attach a consumer.
        self.attach_epoch = 0

    async def session(self, service: str, address: str | None = None) -> RawSession:
        """Raises: NoAnswer: the server cannot be reached now."""
        address = address or self._addresses[service]
        session = self._sessions.get((service, address))
        if session is not None and not session.closed:
            return session
        session = RawSession()
        try:
            session.link = await self._transport.connect(
                address, service, session.on_frame, session.on_closed
            )
        except LinkClosed as error:
            raise NoAnswer("cannot connect") from error
        self._sessions[service, address] = session
        await session.ask(
            common_pb2.CommandHello(protocol_version=PROTOCOL_VERSION, client_name=self.name)
        )
        return session

    def hang_up(self, service: str) -> None:
        for key in [one for one in self._sessions if one[0] == service]:
            session = self._sessions.pop(key)
            if session.link is not None:
                session.link.close()

    @property
    def brokers(self) -> Sequence[str]:
        """Addresses of all brokers, by shard."""
        return self._brokers or [self._addresses[BROKER]]

    async def broker_session(self, wire: _OfPartition) -> RawSession:
        """The link to the broker of a partition. Raises: MagnetarError, NoAnswer."""
        return await self.session(BROKER, await self.keeper(wire))

    async def keeper(self, wire: _OfPartition) -> str:
        """A partition's broker. Raises: MagnetarError, NoAnswer: the topic is not known."""
        if len(self._brokers) <= 1:
            return self._addresses[BROKER]
        topic_id = wire.topic_id
        if not topic_id:
            found = await self.ask(BROKER, topic_pb2.CommandLookup(topic=wire.topic))
            topic_id = found.topic_id
        # One that was made up may name a shard that nobody has.
        return self._brokers[shard_of(topic_id, wire.partition) % len(self._brokers)]

    async def _address(self, service: str, body: Any) -> str:
        """What concerns a transaction goes to who issued it, and a partition to who keeps it."""
        if service == BROKER:
            for name in ("partition", "subscription"):
                if name in body.DESCRIPTOR.fields_by_name:
                    return await self.keeper(getattr(body, name))
        concerns_one = "txn_id" in body.DESCRIPTOR.fields_by_name
        if service == COORDINATOR and len(self._coordinators) > 1 and concerns_one:
            tcid = TxnID.from_wire(body.txn_id).tcid
            if tcid < len(self._coordinators):
                return self._coordinators[tcid]
        return self._addresses[service]

    async def ask(
        self,
        service: str,
        body: Any,
        *,
        timeout: float = TIMEOUT_SECONDS,
        address: str | None = None,
    ) -> Any:
        """One attempt. Raises: MagnetarError, NoAnswer."""
        try:
            session = await self.session(service, address or await self._address(service, body))
            return await session.ask(body, timeout=timeout)
        except NoAnswer:
            self.hang_up(service)
            raise

    async def ask_together(
        self, service: str, bodies: Sequence[Any], *, traceparent: bytes = b""
    ) -> list[Any]:
        """Send commands to a server in a frame, as RawSession.ask_together."""
        try:
            session = await self.session(service, await self._address(service, bodies[0]))
        except (NoAnswer, MagnetarError) as error:
            return [error for _ in bodies]
        answers = await session.ask_together(bodies, traceparent=traceparent)
        if any(isinstance(one, NoAnswer) for one in answers):
            self.hang_up(service)
        return answers

    async def insist(
        self, service: str, body: Any, *, attempts: int = 1_000, address: str | None = None
    ) -> Any:
        """Ask until there is an answer. Raises: MagnetarError; NoAnswer when tired of it."""
        for attempt in range(attempts):
            try:
                return await self.ask(service, body, address=address)
            except NoAnswer:
                pass
            except MagnetarError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(0.02 + 0.02 * min(attempt, 20))
        raise NoAnswer(f"no answer in {attempts} attempts")

    # Shorthands.

    async def new_txn(self, timeout_ms: int) -> TxnID:
        reply = await self.insist(
            COORDINATOR, transaction_pb2.CommandNewTxn(txn_timeout_ms=timeout_ms)
        )
        return TxnID.from_wire(reply.txn_id)

    async def add_partition(self, txn_id: TxnID, partition: common_pb2.Partition) -> None:
        await self.insist(
            COORDINATOR,
            transaction_pb2.CommandAddPartitionToTxn(
                txn_id=txn_id.to_wire(), partitions=[partition]
            ),
        )

    async def add_subscription(self, txn_id: TxnID, name: common_pb2.Subscription) -> None:
        await self.insist(
            COORDINATOR,
            transaction_pb2.CommandAddSubscriptionToTxn(
                txn_id=txn_id.to_wire(), subscriptions=[name]
            ),
        )

    async def describe_txn(self, txn_id: TxnID) -> transaction_pb2.TransactionDescription:
        reply = await self.insist(
            COORDINATOR, transaction_pb2.CommandDescribeTxn(txn_id=txn_id.to_wire())
        )
        description: transaction_pb2.TransactionDescription = reply.transaction
        return description

    async def describe_topic(self, topic: str) -> topic_pb2.CommandDescribeTopicResponse:
        """All of it, though each broker describes its own partitions only."""
        command = topic_pb2.CommandDescribeTopic(topic=topic)
        while True:
            reply, *others = [
                await self.insist(BROKER, command, address=address) for address in self.brokers
            ]
            if all(other.topic_id == reply.topic_id for other in others):
                break
            # It was made anew, and not all have heard of that: a broker whose link is half open
            # hears of nothing until it misses an answer.
            await asyncio.sleep(STALE_SECONDS)
        described: topic_pb2.CommandDescribeTopicResponse = reply
        for other in others:
            described.partitions.extend(other.partitions)
        described.partitions.sort(key=lambda one: one.partition)
        return described

    async def lookup(self, topic: str) -> int:
        """The topic's id."""
        reply = await self.insist(BROKER, topic_pb2.CommandLookup(topic=topic))
        return int(reply.topic_id)

    async def create_topic(self, topic: str, partitions: int, **settings: Any) -> int:
        reply = await self.insist(
            BROKER,
            topic_pb2.CommandCreateTopic(topic=topic, partitions=partitions, **settings),
        )
        return int(reply.topic_id)

    async def read(
        self, topic: str, partition: int, start_offset: int, *, messages_max: int = 0
    ) -> broker_pb2.CommandReadResponse:
        reply: broker_pb2.CommandReadResponse = await self.insist(
            BROKER,
            broker_pb2.CommandRead(
                partition=common_pb2.Partition(topic=topic, partition=partition),
                start_offset=start_offset,
                messages_max=messages_max,
            ),
        )
        return reply


def send_command(
    partition: common_pb2.Partition,
    producer_id: int,
    sequence_id: int,
    values: list[bytes],
    *,
    txn_id: TxnID | None = None,
    follows: TxnID | None = None,
) -> broker_pb2.CommandSend:
    return broker_pb2.CommandSend(
        partition=partition,
        producer_id=producer_id,
        sequence_id=sequence_id,
        num_messages=len(values),
        txn_id=txn_id.to_wire() if txn_id is not None else None,
        follows_txn_ids=[follows.to_wire()] if follows is not None else [],
        batch=batch.encode(values),
    )


def messages_of(delivered: broker_pb2.DeliveredBatch) -> list[tuple[int, bytes]]:
    """Offsets and values of what is not excluded."""
    excluded = [(one.first, one.last) for one in delivered.excluded]
    offset = delivered.entry_id + delivered.first_index
    messages = []
    for value in batch.decode(delivered.batch).values():
        if not any(first <= offset <= last for first, last in excluded):
            messages.append((offset, value))
        offset += 1
    return messages
