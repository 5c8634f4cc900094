"""Commands that send: CommandSend and CommandPublish store batches in the log or the txnlog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from magnetar_broker.budgets.parked_bytes import ParkedBytes
from magnetar_broker.environment import Environment
from magnetar_broker.replies import Answers, Replies
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topics
from magnetar_core import batch as columnar
from magnetar_core.errors import InvalidArgument, MessageTooLarge
from magnetar_core.history.events import Event, PlainConfirmed, WriteConfirmed
from magnetar_core.ids import MessageId, PartitionName, TxnID
from magnetar_core.server.commands import Handler, Reply
from magnetar_core.transport.columns.column import Pair
from magnetar_core.transport.columns.sends import NOWHERE, Send, Sent
from magnetar_core.wire import broker_pb2 as wire

# How many transactions a send may follow.
FOLLOWED_MAX = 100


class SendCommands:
    """Handlers of commands that send. Source: PIP-31, Broker Request Processing, CommandSend."""

    def __init__(
        self,
        environment: Environment,
        topics: Topics,
        replies: Replies,
        random: Random,
        parked_bytes: ParkedBytes,
    ) -> None:
        self._environment = environment
        self._topics = topics
        self._replies = replies
        self._random = random
        self._parked_bytes = parked_bytes
        config = environment.config
        self._batch_bytes_max = config.batch_bytes_max
        self._body_bytes_max = config.batch_body_bytes_max
        self._messages_max = config.constants.batch_messages_max
        self._sends = replies.together(self._send)
        self.handlers: Mapping[str, Handler] = {
            "send": self._sends,
            "publish": replies.together(self._publish),
        }

    def _send(self, command: Send, reply: Reply, answers: Answers) -> None:
        """Handle CommandSend. Source: PIP-31, Broker Request Processing, CommandSend."""
        name, producer_id, sequence_id, num_messages, batch, txn_id, follows, epoch, _ = command
        partition = self._topics.hosted.get(name) or self._topics.named(name)
        if len(follows) > FOLLOWED_MAX:
            raise InvalidArgument(
                f"a send follows {FOLLOWED_MAX} transactions at most, not {len(follows)}"
            )
        byte_count = len(batch)
        limit = self._batch_bytes_max
        if byte_count > limit:
            raise MessageTooLarge(
                f"a batch of {byte_count} bytes exceeds {limit}", batch_bytes_max=limit
            )
        header = columnar.read_header(batch)
        columnar.check_claims(
            header,
            body_bytes_max=self._body_bytes_max,
            messages_max=self._messages_max,
        )
        count = header.count
        if count != num_messages:
            raise InvalidArgument(
                f"num_messages is {num_messages}, but the batch has {count} messages"
            )
        unsettled = partition.order.unsettled_of(follows)
        offset: int | None = None
        settled: Sequence[Pair] = ()
        all_settled = False
        if txn_id is not None:
            is_new = partition.send_in(
                txn_id,
                producer_id,
                sequence_id,
                count,
                batch,
                follows=unsettled,
                sender=reply.desk,
                producer_epoch=epoch,
            )
            place = tuple.__new__(MessageId, (0, 0, sequence_id, 0))
            if unsettled:
                settled = _settled_of(follows, unsettled)
            else:
                all_settled = bool(follows)
        elif unsettled:
            self._park(partition, unsettled[0], command, reply)
            return
        elif header.part:
            raise InvalidArgument("a message comes in parts only inside a transaction")
        else:
            offset, is_new = partition.send(producer_id, sequence_id, count, batch)
            place = NOWHERE if offset is None else MessageId(partition.ledger_id, offset, 0)
        # Its producer then no longer names what it follows (rule k): those ends must be durable.
        is_late = txn_id is None and not follows
        leaving = answers.written if is_late else answers.durable
        leaving.add(reply, tuple.__new__(Sent, (place, not is_new, all_settled, settled)))
        if self._environment.history is not None:
            leaving.tell(_confirmed(partition, command, count, offset, is_late=is_late))
        if is_new:
            counts, metrics = leaving.counts, self._environment.metrics
            counts[metrics.plain_in if txn_id is None else metrics.transactional_in] += count
            counts[metrics.bytes_in] += byte_count

    def _park(self, partition: Partition, follows: TxnID, command: Send, reply: Reply) -> None:
        """Park a plain send that follows a transaction whose end is under way (rule k)."""
        give_back = self._parked_bytes.take(
            len(command.batch), reply, f"the end of transaction {follows}"
        )

        def go_on() -> None:
            give_back()
            self._replies.handle(self._sends, command, reply)

        partition.order.park(follows, go_on)

    def _publish(self, command: wire.CommandPublish, reply: Reply, answers: Answers) -> None:
        messages = command.messages
        limit = self._messages_max
        if len(messages) > limit:
            raise MessageTooLarge(
                f"{len(messages)} messages exceed {limit}", batch_messages_max=limit
            )
        for place, message in enumerate(messages):
            if message.null_value and message.value:
                raise InvalidArgument(f"message {place} has null_value, and a value")
        has_keys = any(message.HasField("key") for message in messages)
        has_times = any(message.HasField("event_time_ms") for message in messages)
        properties = [columnar.encoded_properties(message.properties) for message in messages]
        batch = columnar.encode(
            [None if message.null_value else message.value for message in messages],
            [_key_of(message) for message in messages] if has_keys else None,
            event_times_ms=[_event_time_of(message) for message in messages] if has_times else None,
            properties=properties if any(properties) else None,
        )
        self._send(
            Send(
                PartitionName.from_wire(command.partition),
                command.producer_id or self._random.getrandbits(63) | 1,
                command.sequence_id,
                len(messages),
                batch,
                TxnID.from_wire(command.txn_id) if command.HasField("txn_id") else None,
            ),
            reply,
            answers,
        )


def _confirmed(
    partition: Partition,
    command: Send,
    count: int,
    offset: int | None,
    *,
    is_late: bool,
) -> Event:
    """Return the event of the answer to a send.

    Args:
        offset: of a plain send's first message; None: it is forgotten.
    """
    producer_id, sequence_id, txn_id = command.producer_id, command.sequence_id, command.txn_id
    if txn_id is not None:
        return WriteConfirmed(partition.name, txn_id, producer_id, sequence_id + count)
    known = -1 if offset is None else offset
    return PlainConfirmed(partition.name, producer_id, sequence_id, count, known, is_late)


def _settled_of(follows: Sequence[Pair], unsettled: Sequence[TxnID]) -> Sequence[Pair]:
    """Return which of the transactions that a send follows need not be named again (rule k)."""
    others = frozenset(unsettled)
    return [one for one in follows if one not in others]


def _key_of(message: wire.Message) -> bytes | None:
    return message.key if message.HasField("key") else None


def _event_time_of(message: wire.Message) -> int:
    return message.event_time_ms if message.HasField("event_time_ms") else columnar.NO_EVENT_TIME_MS
