"""Transactional producers without asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import magnetar
from magnetar.blocking.loop_thread import Closing, LoopThread
from magnetar.message import Message
from magnetar.topic_partition import TopicPartition
from magnetar.transactions.producer_identity import PreparedTxnState, ProducerIdentity
from magnetar.transactions.txn_send import TxnSend
from magnetar_core.ids import MessageId

if TYPE_CHECKING:
    from magnetar.blocking.groups import GroupConsumer
    from magnetar.blocking.messaging import Consumer


class TransactionalProducer(Closing):
    """See magnetar.TransactionalProducer."""

    def __init__(self, loop: LoopThread, inner: magnetar.TransactionalProducer) -> None:
        self._loop = loop
        self.inner = inner

    @property
    def transactional_id(self) -> str | None:
        return self.inner.transactional_id

    @property
    def identity(self) -> ProducerIdentity:
        return self.inner.identity

    def init(self, *, keep_prepared: bool = False) -> PreparedTxnState:
        return self._loop.wait(self.inner.init(keep_prepared=keep_prepared))

    def begin(self) -> None:
        self._loop.wait(self.inner.begin())

    def send(
        self, topic: str, value: bytes, key: bytes | None = None, **options: Any
    ) -> TxnSend | MessageId:
        return self._loop.wait(self.inner.send(topic, value, key, **options))

    def enqueue(self, topic: str, value: bytes, key: bytes | None = None, **options: Any) -> None:
        self._loop.wait(self.inner.enqueue(topic, value, key, **options))

    def init_transactions(self, consumer: GroupConsumer) -> None:
        self._loop.wait(self.inner.init_transactions(consumer.inner))

    def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._loop.wait(self.inner.send_offsets_to_transaction(offsets))

    def acknowledge(self, consumer: Consumer | GroupConsumer, messages: Iterable[Message]) -> None:
        self._loop.wait(self.inner.acknowledge(consumer.inner, messages))

    def prepare(self) -> PreparedTxnState:
        return self._loop.wait(self.inner.prepare())

    def commit(self) -> None:
        self._loop.wait(self.inner.commit())

    def abort(self) -> None:
        self._loop.wait(self.inner.abort())

    def complete(self, prepared: PreparedTxnState) -> bool:
        return self._loop.wait(self.inner.complete(prepared))

    def close(self) -> None:
        self._loop.wait(self.inner.close())
