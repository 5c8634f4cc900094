"""Transactions without asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import magnetar
from magnetar.blocking.loop_thread import Closing, LoopThread
from magnetar.identity import PreparedTxnState, ProducerIdentity
from magnetar.message import Message
from magnetar.model import (
    TransactionStatus,
    TxnSend,
)
from magnetar.participants import TransactionPart
from magnetar.places import TopicPartition
from magnetar_core.ids import MessageId, TxnID

if TYPE_CHECKING:
    from magnetar.blocking.groups import GroupConsumer
    from magnetar.blocking.messaging import Consumer


class Transaction:
    """See magnetar.Transaction. As a context manager it commits, or aborts on an exception."""

    def __init__(self, loop: LoopThread, inner: magnetar.Transaction) -> None:
        self._loop = loop
        self.inner = inner

    @property
    def txn_id(self) -> TxnID:
        return self.inner.txn_id

    @property
    def status(self) -> TransactionStatus:
        return self.inner.status

    def commit(self, *, wait_finished: bool = False, fingerprint: str = "") -> None:
        self._loop.wait(self.inner.commit(wait_finished=wait_finished, fingerprint=fingerprint))

    def abort(self) -> None:
        self._loop.wait(self.inner.abort())

    def leave(self) -> TransactionPart:
        return self._loop.wait(self.inner.leave())

    def withdraw(self) -> None:
        self._loop.call(self.inner.withdraw)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.wait(self.inner.__aexit__(kind, error, traceback))


def inner_of(txn: Transaction | None) -> magnetar.Transaction | None:
    return None if txn is None else txn.inner


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
