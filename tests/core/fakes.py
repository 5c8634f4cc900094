"""A server that answers a few commands, so that the transport is tested without a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from magnetar_core.errors import MagnetarError, TopicNotFound
from magnetar_core.server.commands import (
    AnswerSizes,
    CommandSession,
    Conversation,
    Handler,
    Reply,
    each_of,
)
from magnetar_core.wire import broker_pb2, common_pb2, topic_pb2


class FakeServer:
    """Echoes sends, pushes what a flow asks for, knows no topic."""

    def __init__(self) -> None:
        self.sessions: list[CommandSession] = []
        self.refusals: list[MagnetarError] = []
        self.answer_sizes: AnswerSizes = {"read": lambda read: int(read.bytes_max)}
        self.hello_count = 0
        # Answers to reads that somebody else gives; None: they are given at once.
        self.held: list[Callable[[], None]] | None = None
        # Told with every error.
        self.details: dict[str, str] = {}
        # Of reads, whether their answers have left or not.
        self.made_bytes = 0
        self.handlers: Mapping[str, Handler] = each_of(
            {
                "hello": self.hello,
                "send": self.send,
                "flow": self.flow,
                "read": self.read,
                "lookup": self.lookup,
                "list_topics": self.list_topics,
            }
        )

    def accept(self, conversation: Conversation) -> CommandSession:
        session = CommandSession(self.handlers, conversation, self.refuse, self.answer_sizes)
        self.sessions.append(session)
        return session

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        self.refusals.append(error)
        reply.fail(error)

    def hello(self, request: common_pb2.CommandHello, reply: Reply) -> None:
        self.hello_count += 1
        reply.send(common_pb2.CommandHelloResponse(server_name=request.client_name))

    def send(self, request: broker_pb2.CommandSend, reply: Reply) -> None:
        entry_id = request.sequence_id
        message_id = common_pb2.MessageIdData(entry_id=entry_id)
        reply.send(broker_pb2.CommandSendResponse(message_id=message_id))

    def flow(self, request: broker_pb2.CommandFlow, reply: Reply) -> None:
        assert reply.session is not None
        for entry_id in range(request.permits):
            batch = broker_pb2.DeliveredBatch(entry_id=entry_id, batch=bytes(64 << 10))
            reply.session.push(broker_pb2.CommandDeliver(batches=[batch]))

    def read(self, request: broker_pb2.CommandRead, reply: Reply) -> None:
        batch = broker_pb2.DeliveredBatch(batch=bytes(request.bytes_max))
        self.made_bytes += request.bytes_max
        answer = broker_pb2.CommandReadResponse(batches=[batch])
        if self.held is None:
            reply.send(answer)
        else:
            self.held.append(lambda: reply.send(answer))

    def lookup(self, request: topic_pb2.CommandLookup, reply: Reply) -> None:
        raise TopicNotFound(f"no topic {request.topic!r}", topic=request.topic, **self.details)

    def list_topics(self, request: topic_pb2.CommandListTopics, reply: Reply) -> None:
        reply.send(
            topic_pb2.CommandListTopicsResponse(topics=[topic_pb2.TopicSummary(topic="orders")])
        )
