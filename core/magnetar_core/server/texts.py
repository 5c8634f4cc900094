"""Limit of the texts in a command: names, ids and the like, all of them short.

A server keeps texts, repeats them in errors and looks them up. It refuses long texts before any of
that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import PartitionName, SubscriptionName
from magnetar_core.transport.columns.acks import Ack
from magnetar_core.transport.columns.end_txns import EndTxn
from magnetar_core.transport.columns.ends import EndOnParticipants, counted
from magnetar_core.transport.columns.new_txns import NewTxn
from magnetar_core.transport.columns.sends import Send

# Each kind of name has a limit of its own, which is lower.
TEXT_CHARACTERS_MAX = 1_000
# Names that are known to be short enough.
_NAMES_KNOWN_MAX: Final = 1_000

# A function that checks a message; None: messages of this type have no texts.
_Check = Callable[[Any], None]


def check_texts(body: Any) -> None:
    """Check that no text of a command is too long to be a name.

    Raises:
        InvalidArgument: a text exceeds TEXT_CHARACTERS_MAX.
    """
    kind = type(body)
    if kind is Send:
        _check_name(body.partition)
        return
    if kind is NewTxn:
        for name in body.participants:
            _check_name(name)
        for part in (body.identity, body.named_sequence):
            if part is not None:
                check_texts(part)
        return
    if kind is EndTxn:
        for name, _ in body.counts or ():
            _check_name(name)
        _check_length("fingerprint", body.fingerprint)
        if body.identity is not None:
            check_texts(body.identity)
        return
    if kind is EndOnParticipants:
        for participant in body.participants:
            _check_name(counted(participant)[0])
        return
    if kind is Ack:
        _check_name(body.subscription)
        if body.member is not None:
            for text in body.member[:2]:
                _check_length("member", text)
        return
    if body.ByteSize() <= TEXT_CHARACTERS_MAX:
        return
    check = _check_of(body.DESCRIPTOR)
    if check is not None:
        check(body)


@cache
def _check_of(descriptor: Descriptor) -> _Check | None:
    checks = list(_checks_of_fields(descriptor))
    if not checks:
        return None
    if len(checks) == 1:
        return checks[0]

    def check(message: Any) -> None:
        for one in checks:
            one(message)

    return check


def _checks_of_fields(descriptor: Descriptor) -> Iterator[_Check]:
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            yield _check_of_repeated_text(field) if field.is_repeated else _check_of_text(field)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            # Maps hold the user's properties of a message: the message's size bounds them.
            inner = _check_of(field.message_type)
            if inner is not None:
                yield _check_inside(field, inner)


def _check_of_text(field: FieldDescriptor) -> _Check:
    name = field.name

    def check(message: Any) -> None:
        _check_length(name, getattr(message, name))

    return check


def _check_of_repeated_text(field: FieldDescriptor) -> _Check:
    name = field.name

    def check(message: Any) -> None:
        for text in getattr(message, name):
            _check_length(name, text)

    return check


def _check_inside(field: FieldDescriptor, inner: _Check) -> _Check:
    name = field.name
    if field.is_repeated:

        def check_each(message: Any) -> None:
            for one in getattr(message, name):
                inner(one)

        return check_each

    has_presence = field.has_presence

    def check(message: Any) -> None:
        if not has_presence or message.HasField(name):
            inner(getattr(message, name))

    return check


@lru_cache(maxsize=_NAMES_KNOWN_MAX)
def _check_name(name: PartitionName | SubscriptionName) -> None:
    """Check a name, as check_texts() does. The same ones come again and again."""
    _check_length("topic", name.topic)
    if isinstance(name, SubscriptionName):
        _check_length("subscription", name.subscription)


def _check_length(name: str, text: str) -> None:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise InvalidArgument(
            f"{name} has {len(text)} characters; no text of a command has more than"
            f" {TEXT_CHARACTERS_MAX}"
        )
