"""Arguments of public methods, good and bad ones, as their annotations and names say."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from magnetar import (
    BytesColumn,
    ColumnBatch,
    DeadLetterPolicy,
    InitialPosition,
    MessageId,
    PreparedTxnState,
    SubscriptionType,
    TopicPartition,
    TransactionAction,
    TransactionStatus,
    TxnID,
)

TOPICS = ("t0", "t1", "t2")
PARTITIONS = 2

BAD: tuple[Any, ...] = (
    None,
    "text",
    "\ud800",
    b"bytes",
    5,
    -1,
    1 << 64,
    -(1 << 70),
    1.5,
    float("nan"),
    float("inf"),
    True,
    [],
    [5],
    {},
    {"a": 1},
    object(),
    np.float64(2.5),
    lambda: 1 // 0,
)

# Of arguments whose type says too little, by name.
TEXTS: Mapping[str, tuple[str, ...]] = {
    "topic": (*TOPICS, *TOPICS, "nowhere"),
    "topics": TOPICS,
    "subscription": ("s0", "s1"),
    "group": ("g0", "g1"),
    "name": ("n0", "n1"),
    "run_token": ("r0", "r1"),
    "fingerprint": ("", "f"),
    "transactional_id": ("x0", "x1", "x2"),
    "pattern": ("t*",),
    "codec": ("none", "zstd", "lz4"),
    "batching": ("mixed", "by_key"),
    "type": ("exclusive", "shared", "failover", "key_shared"),
    "initial_position": ("earliest", "latest"),
    "position": ("earliest", "latest"),
}
INTEGERS: Mapping[str, tuple[int, ...]] = {
    "partition": (0, 1),
    "partitions": (1, 2),
    "start": (0, 1, 5),
    "end": (0, 3, 50),
    "offset": (0, 1, 10),
    "sequence": (1, 2, 3),
    "batch_bytes_max": (100, 2_000),
    "batch_messages_max": (1, 3, 100),
    "in_flight_batches_max": (1, 16),
    "whole_bytes_max": (1_000, 3_000),
    "message_bytes_max": (5_000,),
    "receiver_queue_messages": (1, 10),
    "receiver_queue_bytes": (1_000, 100_000),
    "max_messages": (1, 3, 100),
}
NUMBERS: Mapping[str, tuple[float, ...]] = {
    "timeout_s": (0.01, 0.3, 5.0),
    "delay_s": (0.0, 0.01),
    "linger_ms": (0, 1, 5),
    "follow_period_s": (0.01,),
    "session_timeout_s": (10.0,),
    "rebalance_timeout_s": (10.0,),
    "max_poll_interval_s": (10.0, 300.0),
}


class Arguments:
    """Draws the arguments of calls.

    Args:
        objects: returns an object of a class that there is, or None.
    """

    def __init__(self, random: Random, bad_rate: float, objects: Callable[[str], Any]) -> None:
        self._random = random
        self._bad_rate = bad_rate
        self._objects = objects
        self.is_bad = False

    def of(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Draw the arguments of a function, but for those of messages."""
        plain = inspect.unwrap(function)
        hints = typing.get_type_hints(plain)
        drawn: dict[str, Any] = {}
        for parameter in inspect.signature(plain).parameters.values():
            if parameter.name == "self" or parameter.kind is parameter.VAR_KEYWORD:
                continue
            if parameter.default is not parameter.empty and self._random.random() < 0.6:
                continue
            drawn[parameter.name] = self._drawn(parameter.name, hints.get(parameter.name, Any))
        return drawn

    def spoilt(self, good: Any) -> Any:
        """Return what was drawn, or something else."""
        if self._random.random() >= self._bad_rate:
            return good
        self.is_bad = True
        return self._random.choice(BAD)

    def _drawn(self, name: str, hint: Any) -> Any:
        return self.spoilt(self._good(name, hint))

    def _good(self, name: str, hint: Any) -> Any:
        parts = typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,)
        parts = tuple(part for part in parts if part is not type(None)) or (hint,)
        chosen = self._random.choice(parts)
        origin = typing.get_origin(chosen)
        if origin in (Sequence, Iterable):
            return [self._good(name, typing.get_args(chosen)[0]) for _ in range(self._few())]
        if origin is Mapping:
            return {TopicPartition(self._text("topic"), 0): self._random.randrange(4)}
        make = MAKERS.get(chosen)
        if make is not None:
            return make(self, name)
        kind = getattr(chosen, "__name__", "")
        if kind in ("Member", "Acknowledging"):
            return self._objects("GroupConsumer")
        found = self._objects(kind)
        if found is None and origin is Callable:
            return self._random.choice((None, lambda *_: None))
        return found

    def _few(self) -> int:
        return self._random.choice((0, 1, 1, 2, 3))

    def _text(self, name: str) -> str:
        return self._random.choice(TEXTS.get(name, ("a", "b")))

    def text(self, name: str) -> str:
        return self._text(name)

    def integer(self, name: str) -> Any:
        number = self._random.choice(INTEGERS.get(name, (0, 1, 7)))
        return np.int64(number) if self._random.random() < 0.1 else number

    def number(self, name: str) -> float:
        return self._random.choice(NUMBERS.get(name, (1.0, 10.0)))

    def flag(self, name: str) -> bool:
        return self._random.random() < 0.5

    def txn_id(self, name: str) -> TxnID:
        txn = self._objects("Transaction")
        try:
            found: TxnID = txn.txn_id
        except Exception:
            return TxnID(1, self._random.randrange(5))
        return found

    def message_id(self, name: str) -> MessageId:
        return MessageId(1, self._random.randrange(5), 0, self._random.randrange(PARTITIONS))

    def place(self, name: str) -> TopicPartition:
        return TopicPartition(self._text("topic"), self._random.randrange(PARTITIONS))


UNIONS = (typing.Union, type(int | str))
MAKERS: Mapping[Any, Callable[[Arguments, str], Any]] = {
    str: Arguments.text,
    int: Arguments.integer,
    float: Arguments.number,
    bool: Arguments.flag,
    TxnID: Arguments.txn_id,
    MessageId: Arguments.message_id,
    TopicPartition: Arguments.place,
    SubscriptionType: lambda arguments, name: SubscriptionType.SHARED,
    InitialPosition: lambda arguments, name: InitialPosition.EARLIEST,
    TransactionAction: lambda arguments, name: TransactionAction.ABORT,
    TransactionStatus: lambda arguments, name: TransactionStatus.OPEN,
    PreparedTxnState: lambda arguments, name: PreparedTxnState(),
    DeadLetterPolicy: lambda arguments, name: DeadLetterPolicy(redeliveries_max=1),
}


class Given:
    """A message as a caller gives it, and what is to be stored.

    Attributes:
        arguments: what the call gets. The caller changes it afterwards.
        content: value, key, properties, event time.
    """

    def __init__(self, number: int, random: Random, arguments: Arguments) -> None:
        value = b"%d:" % number + random.choice((b"", b"x", b"y" * 50, b"z" * 1_500, b"w" * 3_500))
        if random.random() < 0.02:
            value += bytes(10_000)
        key = random.choice((None, None, b"k%d" % random.randrange(4), b"\x00\xff", b""))
        properties = random.choice(
            (None, None, {}, {"a": "b"}, {"\u00e9": "\u2028\x00", "": '"\\'})
        )
        time_ms = random.choice((None, None, 0, -1, 1_700_000_000_000, (1 << 63) - 1))
        self.value = value
        self.content = (value, key, dict(properties or {}), time_ms)
        kind = random.choice((bytes, bytes, bytearray, memoryview))
        self.arguments: dict[str, Any] = {
            "value": kind(bytearray(value)) if kind is not bytes else value,
            "key": key if key is None or random.random() < 0.7 else bytearray(key),
            "properties": None if properties is None else dict(properties),
            "event_time_ms": time_ms,
        }
        if random.random() < 0.4:
            self.arguments["partition"] = random.randrange(PARTITIONS)
        for name, good in list(self.arguments.items()):
            self.arguments[name] = arguments.spoilt(good)
            if good is None and self.arguments[name] is None:
                del self.arguments[name]
            elif name == "value" and self.arguments[name] is None:
                # It would be stored, and has no number by which it is found again.
                self.arguments[name] = good

    def spoil(self) -> None:
        """Change what was given, as callers do that use their buffers again."""
        for given in self.arguments.values():
            if isinstance(given, bytearray | memoryview):
                given[:] = b"!" * len(given)
            elif isinstance(given, dict):
                given.clear()


def columns_of(values: Sequence[bytes]) -> ColumnBatch:
    """Return messages as columns."""
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    packed = b"".join(offset.to_bytes(4, "little") for offset in offsets)
    return ColumnBatch(len(values), BytesColumn(packed, b"".join(values)))
