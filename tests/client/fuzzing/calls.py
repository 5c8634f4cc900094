"""Makes calls out of steps: for an asyncio client and for a blocking one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.client.fuzzing.arguments import Arguments, Given, columns_of
from tests.client.fuzzing.ledger import Content, Ledger, Record
from tests.client.fuzzing.script import Script, Step, described

from magnetar import Transaction
from magnetar.blocking.facade import Facade

# Arguments of these are messages.
SENDS = {"send", "send_nowait", "enqueue", "send_many", "send_columns"}
# What administrators change must not be what callers have stored.
DESTRUCTIVE = {("TopicAdmin", "create"), ("TopicAdmin", "delete")}
OTHER_TOPICS = ("d0", "d1")
OBJECTS_MAX = 6
# A year.
ENDLESS_S_MIN = 365 * 24 * 3600


class Call:
    """A call that is about to be made.

    Attributes:
        make: makes it.
        spoil: changes what was given, when the call has begun.
        waits_for_messages: whether it has no end without them.
    """

    def __init__(
        self,
        record: Record,
        make: Callable[[], Any],
        spoil: Callable[[], None] = lambda: None,
        *,
        waits_for_messages: bool = False,
    ) -> None:
        self.record = record
        self.make = make
        self.spoil = spoil
        self.waits_for_messages = waits_for_messages


class Objects:
    """The objects that callers use, by their classes."""

    def __init__(self, client: Any) -> None:
        admin = client.admin
        self._found: dict[str, list[Any]] = {
            "Client": [client],
            "AdminClient": [admin],
            "TopicAdmin": [admin.topics],
            "SubscriptionAdmin": [admin.subscriptions],
            "GroupAdmin": [admin.groups],
            "TransactionAdmin": [admin.transactions],
            "TransactionalIdAdmin": [admin.transactional_ids],
            "MemberAdmin": [admin.members],
            "NamedSequenceAdmin": [admin.named_sequences],
            "TransactionScope": [client],
        }

    def add(self, found: object) -> None:
        """Keep what a call has returned, if others may use it."""
        for one in found if isinstance(found, list) else (found,):
            known = self._found.setdefault(type(one).__name__, [])
            if type(one).__name__ in KEPT:
                known.append(one)
                del known[:-OBJECTS_MAX]

    def all(self, kind: str) -> list[Any]:
        """Return those of a class that are kept."""
        return list(self._found.get(kind, ()))

    def at(self, kind: str, place: int) -> Any:
        """Return one of a class; None: there is none yet."""
        known = self._found.get(kind)
        return known[place % len(known)] if known else None


KEPT = {
    "Producer",
    "Consumer",
    "GroupConsumer",
    "Transaction",
    "TransactionalProducer",
    "Message",
    "MessageColumns",
    "TransactionPart",
    "Cut",
    "ProducerDescription",
}


def inner(given: Any) -> Any:
    """The asyncio object."""
    return given.inner if isinstance(given, Facade) else given


class Calls:
    """Makes the calls of a script.

    Args:
        in_real_time: whether no call may wait long for messages.
    """

    def __init__(
        self, script: Script, objects: Objects, ledger: Ledger, *, in_real_time: bool
    ) -> None:
        self.objects = objects
        self.ledger = ledger
        self._script = script
        self._in_real_time = in_real_time
        self._numbers = itertools.count()

    def used(self, kind: str) -> list[Any]:
        """Return all objects of a class, also those that are kept no more."""
        every = (*self.objects.all(kind), *self.ledger.owners(kind))
        return list({id(one): one for one in every}.values())

    def of(self, step: Step) -> Call | None:
        """Prepare the call of a step; None: there is nothing to call yet."""
        target = self.objects.at(step.kind, step.place)
        if target is None:
            return None
        random = Random(f"{self._script.seed}/{step.chance}")
        arguments = Arguments(
            random, self._script.bad_rate, lambda kind: self.objects.at(kind, random.randrange(8))
        )
        if step.method in SENDS:
            return self._send(step, target, random, arguments)
        method = getattr(target, step.method)
        given = arguments.of(method)
        if (step.kind, step.method) in DESTRUCTIVE and isinstance(given.get("topic"), str):
            given["topic"] = random.choice(OTHER_TOPICS)
        if self._in_real_time:
            given.pop("follow_period_s", None)
            if step.method.startswith("receive"):
                given["timeout_s"] = 0.01
        txn = inner(given.get("txn"))
        if step.kind == "Transaction":
            txn = inner(target)
        elif step.kind == "TransactionalProducer":
            txn = inner(target).transaction
        record = self.ledger.begin(
            step,
            step.method,
            target,
            txn=txn if isinstance(txn, Transaction) else None,
            shown=described(given),
            may_time_out="timeout_s" in given or step.method == "poll",
            ended_txn_id=given.get("txn_id")
            if (step.kind, step.method) == ("TransactionAdmin", "end")
            else None,
        )
        return Call(
            record,
            lambda: method(**given),
            waits_for_messages=step.method.startswith("receive")
            and _is_endless(given.get("timeout_s")),
        )

    def a_send(self, random: Random, txn: Any) -> tuple[Any, dict[str, Any], Content | None]:
        """Return a method, its arguments and the message, for a send in the block of a scope."""
        arguments = Arguments(random, self._script.bad_rate, lambda kind: None)
        given = Given(next(self._numbers), random, arguments)
        producer = self.objects.at("Producer", random.randrange(8))
        return producer, {**given.arguments, "txn": txn}, content_of(given.arguments)

    def _send(self, step: Step, target: Any, random: Random, arguments: Arguments) -> Call:
        method = getattr(target, step.method)
        count = 1
        if step.method in ("send_many", "send_columns"):
            count = random.choice((0, 1, 2, 7))
        messages = [Given(next(self._numbers), random, arguments) for _ in range(count)]
        contents: list[Content | None] = [content_of(message.arguments) for message in messages]
        if step.method == "send_many":
            given: dict[str, Any] = {"values": [message.arguments["value"] for message in messages]}
            if random.random() < 0.5:
                given["keys"] = [message.content[1] for message in messages]
            contents = [
                None
                if one is None
                else (one[0], given["keys"][place] if "keys" in given else None, {}, None)
                for place, one in enumerate(
                    content_of({"value": message.arguments["value"]}) for message in messages
                )
            ]
        elif step.method == "send_columns":
            given = {
                "batches": [columns_of([message.value for message in messages])] if messages else []
            }
            contents = [(message.value, None, {}, None) for message in messages]
        else:
            given = dict(messages[0].arguments)
        if step.kind in ("TransactionalProducer", "Transaction"):
            given["topic"] = arguments.spoilt(arguments.text("topic"))
            txn = inner(target) if step.kind == "Transaction" else inner(target).transaction
        else:
            txn = self._txn(random, arguments)
            if txn is not None:
                given["txn"] = txn
        if "partition" in given and not is_partition(given["partition"]):
            contents = [None] * len(contents)
        record = self.ledger.begin(
            step,
            step.method,
            target,
            txn=inner(txn) if isinstance(inner(txn), Transaction) else None,
            contents=contents,
            shown=described(given),
        )
        if txn is not None and record.txn is None:
            record.contents = [None] * max(1, len(contents))

        def spoil() -> None:
            for message in messages:
                message.spoil()
            if "values" in given:
                given["values"].clear()

        return Call(record, lambda: method(**given), spoil)

    def _txn(self, random: Random, arguments: Arguments) -> Any:
        if random.random() < 0.4:
            return None
        return arguments.spoilt(self.objects.at("Transaction", random.randrange(8)))


def content_of(given: Mapping[str, Any]) -> Content | None:
    """Return what is to be stored of a message; None: it must be refused."""
    value, key = given.get("value"), given.get("key")
    properties, time_ms = given.get("properties"), given.get("event_time_ms")
    if not isinstance(value, bytes | bytearray | memoryview):
        return None
    if key is not None and not isinstance(key, bytes | bytearray | memoryview):
        return None
    if properties is not None and not (
        isinstance(properties, dict)
        and all(isinstance(one, str) for item in properties.items() for one in item)
    ):
        return None
    if time_ms is not None and (
        isinstance(time_ms, bool)
        or not isinstance(time_ms, int)
        or not -(1 << 63) < time_ms < 1 << 63
    ):
        return None
    return (
        bytes(value),
        None if key is None else bytes(key),
        dict(properties or {}),
        time_ms,
    )


def is_partition(partition: Any) -> bool:
    """Whether a topic has it; None: the key decides."""
    return partition is None or (type(partition) is int and partition in (0, 1))


def _is_endless(timeout_s: object) -> bool:
    """Whether this time limit is none, or longer than any test."""
    return timeout_s is None or (isinstance(timeout_s, int | float) and timeout_s > ENDLESS_S_MIN)
