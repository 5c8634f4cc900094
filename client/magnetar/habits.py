"""Names that users of Kafka and Pulsar type, and what does the same here. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

_SEND: Final = "send(), or enqueue() without waiting"
_RECEIVE: Final = "receive(), or receive_batch() for several"
_ACK: Final = "ack(message), or ack_cumulative(message) for all up to it"
_NOT_NEEDED: Final = "nothing: the client does that by itself"

# What to write instead, by class and name.
HABITS: Final[Mapping[str, Mapping[str, str]]] = {
    "Client": {
        "begin": "begin_transaction()",
        "create_reader": "read(topic)",
        "create_topic": "admin.topics.create(topic)",
        "create_topics": "admin.topics.create(topic)",
        "get_topic_partitions": "admin.topics.describe(topic)",
        "list_topics": "admin.topics.list()",
        "new_transaction": "begin_transaction()",
        "poll": _NOT_NEEDED,
        "produce": "create_producer(topic), and send() of that",
        "producer": "create_producer(topic)",
        "send": "create_producer(topic), and send() of that",
        "shutdown": "close()",
        "start": "nothing: connect() has done that",
        "stop": "close()",
    },
    "Producer": {
        "begin_transaction": "begin_transaction() or transaction() of the client",
        "poll": _NOT_NEEDED,
        "produce": _SEND,
        "send_and_wait": "send(), which waits",
        "send_async": "send_nowait(), or enqueue()",
        "start": "nothing: create_producer() has done that",
        "stop": "close()",
    },
    "Consumer": {
        "acknowledge": _ACK,
        "acknowledge_cumulative": "ack_cumulative(message)",
        "assign": "partitions=[...] of subscribe(), or Client.read()",
        "assignment": "partitions",
        "batch_receive": "receive_batch()",
        "commit": _ACK,
        "committed": "admin.topics.describe(topic), which shows subscriptions",
        "consume": _RECEIVE,
        "getmany": "receive_batch()",
        "getone": "receive()",
        "negative_acknowledge": "nack(message)",
        "poll": _RECEIVE,
        "stop": "close()",
        "subscribe": "subscribe() of the client, which makes consumers",
        "unsubscribe": "admin.subscriptions.delete(topic, subscription)",
    },
    "GroupConsumer": {
        "acknowledge": _ACK,
        "batch_receive": "receive_batch()",
        "commit": _ACK,
        "consume": _RECEIVE,
        "getmany": "poll(), or receive_batch()",
        "getone": "receive()",
        "negative_acknowledge": "nack(message)",
        "stop": "close()",
        "subscribe": "consumer_group(group, topics) of the client",
        "unsubscribe": "close()",
    },
    "TransactionalProducer": {
        "abort_transaction": "abort()",
        "begin_transaction": "begin()",
        "commit_transaction": "commit()",
        "complete_transaction": "complete(state)",
        "flush": "nothing: commit() and prepare() do that",
        "prepare_transaction": "prepare()",
        "produce": _SEND,
        "send_and_wait": "send(), which waits",
    },
    "Transaction": {
        "abort_transaction": "abort()",
        "commit_transaction": "commit()",
        "get_txn_id": "txn_id",
        "produce": _SEND,
    },
    "Message": {
        "data": "value",
        "error": "nothing: errors are raised",
        "headers": "properties",
        "ordering_key": "key",
        "partition_key": "key",
        "publish_timestamp": "append_time_ms",
        "timestamp": "event_time_ms, or append_time_ms",
    },
}


class KnowsHabits:
    """Base of classes that say what does the same as a method of Kafka's or Pulsar's clients."""

    __slots__ = ()

    # Type checkers must not believe that any name is there.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with the name that does the same here."""
            kind = type(self).__name__
            text = f"{kind!r} object has no attribute {name!r}"
            if (instead := HABITS.get(kind, {}).get(name)) is not None:
                text += f": use {instead}"
            raise AttributeError(text, name=name, obj=self)
