"""Commands that send: CommandSend and CommandPublish store batches in the log or the txnlog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from magnetar_broker.budgets.parked_bytes import ParkedBytes
from magnetar_broker.commands.subscription_commands import epoch_of
from magnetar_broker.environment import Environment
from magnetar_broker.replies import Answers, Replies
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topics
from magnetar_core import batch as columnar
from magnetar_core.errors import InvalidArgument, MessageTooLarge
from magnetar_core.history.events import Event, PlainConfirmed, WriteConfirmed
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import Handler, Reply
from magnetar_core.transport.frames import detached
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
        self._sends = replies.together(self._send)
        self.handlers: Mapping[str, Handler] = {
            "send": self._sends,
            "publish": replies.together(self._publish),
        }

    def _send(self, command: wire.CommandSend, reply: Reply, answers: Answers) -> None:
        """Handle CommandSend. Source: PIP-31, Broker Request Processing, CommandSend."""
        partition = self._topics.named(command.partition)
        # It may follow a hundred, nearly all of which are settled: plain tuples equal their TxnIDs,
        # and take half as long to make.
        follows = [(one.most_bits, one.least_bits) for one in command.follows_txn_ids]
        if len(follows) > FOLLOWED_MAX:
            raise InvalidArgument(
                f"a send follows {FOLLOWED_MAX} transactions at most, not {len(follows)}"
            )
        transactional = command.HasField("txn_id")
        producer_id, sequence_id = command.producer_id, command.sequence_id
        batch = command.batch
        byte_count = len(batch)
        config = self._environment.config
        limit = config.batch_bytes_max
        if byte_count > limit:
            raise MessageTooLarge(
                f"a batch of {byte_count} bytes exceeds {limit}", batch_bytes_max=limit
            )
        header = columnar.read_header(batch)
        columnar.check_claims(
            header,
            body_bytes_max=config.batch_body_bytes_max,
            messages_max=config.constants.batch_messages_max,
        )
        count = header.count
        if count != command.num_messages:
            raise InvalidArgument(
                f"num_messages is {command.num_messages}, but the batch has {count} messages"
            )
        unsettled = partition.order.unsettled_of(follows)
        # Filled in place: a message that is given to a constructor is copied, at thrice the cost.
        response = wire.CommandSendResponse()
        offset: int | None = None
        if transactional:
            is_new = partition.send_in(
                TxnID.from_wire(command.txn_id),
                producer_id,
                sequence_id,
                count,
                batch,
                follows=unsettled,
                session=reply.session,
                origin=reply.origin,
                rights=reply.rights,
                producer_epoch=epoch_of(command),
            )
            response.message_id.index = sequence_id
            _tell_settled(response, follows, unsettled)
        elif unsettled:
            self._park(partition, unsettled[0], command, reply)
            return
        elif header.part:
            raise InvalidArgument("a message comes in parts only inside a transaction")
        else:
            offset, is_new = partition.send(producer_id, sequence_id, count, batch)
            if offset is not None:
                place = response.message_id
                place.ledger_id, place.entry_id = partition.ledger_id, offset
        # Its producer then no longer names what it follows (rule k): those ends must be durable.
        is_late = not transactional and not follows
        leaving = answers.written if is_late else answers.durable
        leaving.add(reply, response)
        if self._environment.history is not None:
            leaving.tell(_confirmed(partition, command, count, offset, is_late=is_late))
        if is_new:
            self._environment.metrics.sent(
                leaving.count, count, byte_count, transactional=transactional
            )
        else:
            response.duplicate = True

    def _park(
        self, partition: Partition, follows: TxnID, command: wire.CommandSend, reply: Reply
    ) -> None:
        """Park a plain send that follows a transaction whose end is under way (rule k)."""
        give_back = self._parked_bytes.take(
            len(command.batch), reply, f"the end of transaction {follows}"
        )
        parked = detached(command)

        def go_on() -> None:
            give_back()
            self._replies.handle(self._sends, parked, reply)

        partition.order.park(follows, go_on)

    def _publish(self, command: wire.CommandPublish, reply: Reply, answers: Answers) -> None:
        messages = command.messages
        limit = self._environment.config.constants.batch_messages_max
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
            wire.CommandSend(
                partition=command.partition,
                producer_id=command.producer_id or self._random.getrandbits(63) | 1,
                sequence_id=command.sequence_id,
                num_messages=len(messages),
                txn_id=command.txn_id if command.HasField("txn_id") else None,
                batch=batch,
            ),
            reply,
            answers,
        )


def _confirmed(
    partition: Partition,
    command: wire.CommandSend,
    count: int,
    offset: int | None,
    *,
    is_late: bool,
) -> Event:
    """Return the event of the answer to a send.

    Args:
        offset: of a plain send's first message; None: it is forgotten.
    """
    producer_id, sequence_id = command.producer_id, command.sequence_id
    if command.HasField("txn_id"):
        txn_id = TxnID.from_wire(command.txn_id)
        return WriteConfirmed(partition.name, txn_id, producer_id, sequence_id + count)
    known = -1 if offset is None else offset
    return PlainConfirmed(partition.name, producer_id, sequence_id, count, known, is_late)


def _tell_settled(
    response: wire.CommandSendResponse,
    follows: Sequence[tuple[int, int]],
    unsettled: Sequence[TxnID],
) -> None:
    """Tell which of the transactions that a send follows need not be named again (rule k)."""
    if not unsettled:
        if follows:
            response.all_settled = True
        return
    others = frozenset(unsettled)
    for most_bits, least_bits in follows:
        if (most_bits, least_bits) not in others:
            response.settled_txn_ids.add(most_bits=most_bits, least_bits=least_bits)


def _key_of(message: wire.Message) -> bytes | None:
    return message.key if message.HasField("key") else None


def _event_time_of(message: wire.Message) -> int:
    return message.event_time_ms if message.HasField("event_time_ms") else columnar.NO_EVENT_TIME_MS
