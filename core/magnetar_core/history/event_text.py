"""Events of the protocol's history as JSON, and back. Pure.

A TxnID is its text, a participant is a list: [topic, partition, topic id], for a subscription with
its name at the end. Other tuples are lists, and what has names is an object.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from operator import or_
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

from magnetar_core.history.events import EVENTS, Event, Participant
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID

# Texts of names and TxnIDs that come again and again.
_TEXTS_MAX = 4_096

_ToText: TypeAlias = Callable[[Any], str]
_FromJson: TypeAlias = Callable[[Any], Any]


class EventUnknown(ValueError):
    """An object is not an event of this version's vocabulary; its text says why."""


def to_text(event: Event) -> str:
    """Return the members of a JSON object: `"event":"Finished","txn_id":"0:1:7",...`."""
    form = _FORMS[type(event)]
    if not form.converted:
        return form.template % event
    values: list[Any] = list(event)
    for place, convert in form.converted:
        values[place] = convert(values[place])
    return form.template % tuple(values)


def from_json(members: Mapping[str, Any]) -> Event:
    """Return the event that an object's members describe; others of its members do not count.

    Raises:
        EventUnknown: there is no such event, or a member is missing or of another type.
    """
    name = members.get("event")
    kind = _BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None:
        raise EventUnknown(f"there is no event {name!r}")
    try:
        return _read(kind, members)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EventUnknown(f"it is not an event {name}: {error!r}") from error


class _Form(NamedTuple):
    """Form of the text of events of a type: a template, and the fields that need more than `%s`."""

    template: str
    converted: tuple[tuple[int, _ToText], ...]
    fields: tuple[tuple[str, _FromJson], ...]


@lru_cache(_TEXTS_MAX)
def _txn_text(txn_id: TxnID) -> str:
    return f'"{txn_id}"'


# Two classes of tuples: a partition and a subscription are never equal.
@lru_cache(_TEXTS_MAX)
def _participant_text(participant: Participant) -> str:
    return _compact(participant)


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _bool_text(value: bool) -> str:
    return "true" if value else "false"


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is not a text")
    return value


def _participant(value: Any) -> Participant:
    if len(value) == len(PartitionName._fields):
        topic, partition, topic_id = value
        return PartitionName(_text(topic), _whole(partition), _whole(topic_id))
    topic, partition, topic_id, name = value
    return SubscriptionName(_text(topic), _whole(partition), _whole(topic_id), _text(name))


def _partition(value: Any) -> PartitionName:
    participant = _participant(value)
    if not isinstance(participant, PartitionName):
        raise TypeError(f"{value!r} is not a partition")
    return participant


def _subscription(value: Any) -> SubscriptionName:
    participant = _participant(value)
    if not isinstance(participant, SubscriptionName):
        raise TypeError(f"{value!r} is not a subscription")
    return participant


_PLAIN: Mapping[Any, tuple[_ToText | None, _FromJson]] = {
    int: (None, _whole),
    bool: (_bool_text, _flag),
    str: (_compact, _text),
    TxnID: (_txn_text, lambda value: TxnID.parse(_text(value))),
    PartitionName: (_participant_text, _partition),
    SubscriptionName: (_participant_text, _subscription),
    Participant: (_participant_text, _participant),
}


def _conversions(kind: Any) -> tuple[_ToText | None, _FromJson]:
    """Return how values of a type become text (None: as they are), and come back."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        if arguments[-1] is Ellipsis:
            return _of_list(*_conversions(arguments[0]))
        return _of_row([_conversions(one) for one in arguments])
    if type(None) in arguments:
        others = [one for one in arguments if one is not type(None)]
        return _of_optional(*_conversions(reduce(or_, others)))
    return _of_named(kind)


def _of_list(to_text: _ToText | None, from_json: _FromJson) -> tuple[_ToText, _FromJson]:
    convert = to_text or str

    def write(values: Any) -> str:
        return f"[{','.join([convert(one) for one in values])}]" if values else "[]"

    def read(values: Any) -> Any:
        if type(values) is not list:
            raise TypeError(f"{values!r} is not a list")
        return tuple(from_json(one) for one in values)

    return write, read


def _of_row(columns: list[tuple[_ToText | None, _FromJson]]) -> tuple[_ToText, _FromJson]:
    converts = [to_text or str for to_text, _ in columns]
    reads = [from_json for _, from_json in columns]
    template = f"[{','.join(['%s'] * len(columns))}]"

    def write(values: Any) -> str:
        return template % tuple([to(one) for to, one in zip(converts, values, strict=True)])

    def read(values: Any) -> Any:
        return tuple(one(value) for one, value in zip(reads, values, strict=True))

    # A tuple of numbers is its own argument.
    return template.__mod__ if all(to is None for to, _ in columns) else write, read


def _of_optional(to_text: _ToText | None, from_json: _FromJson) -> tuple[_ToText, _FromJson]:
    convert = to_text or str
    return (
        lambda value: "null" if value is None else convert(value),
        lambda value: None if value is None else from_json(value),
    )


def _of_named(kind: Any) -> tuple[_ToText, _FromJson]:
    form = _form(kind, "")

    def write(value: Any) -> str:
        values = list(value)
        for place, convert in form.converted:
            values[place] = convert(values[place])
        return f"{{{form.template % tuple(values)}}}"

    def read(members: Any) -> Any:
        return kind(*(convert(members[name]) for name, convert in form.fields))

    return write, read


def _form(kind: Any, head: str) -> _Form:
    hints = get_type_hints(kind)
    conversions = [_conversions(hints[name]) for name in kind._fields]
    return _Form(
        head + ",".join(f'"{name}":%s' for name in kind._fields),
        tuple((place, to) for place, (to, _) in enumerate(conversions) if to is not None),
        tuple(zip(kind._fields, (read for _, read in conversions), strict=True)),
    )


def _read(kind: type[Event], members: Mapping[str, Any]) -> Event:
    event: Event = kind(*(convert(members[name]) for name, convert in _FORMS[kind].fields))
    return event


_FORMS: Mapping[type[Event], _Form] = {
    kind: _form(kind, f'"event":"{kind.__name__}",') for kind in EVENTS
}
_BY_NAME = {kind.__name__: kind for kind in EVENTS}
