"""Events of all kinds, made from their types: a value for each field."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_
from random import Random
from typing import Any, get_args, get_origin, get_type_hints

from magnetar_core.history.events import EVENTS, Event, Participant
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID

# What a name may have: JSON and templates have characters of their own.
NAMES = ("orders", 'a "quoted" name', "50 %s", "größer", "\\n{}", "")


def some_events(random: Random, count: int) -> Iterator[Event]:
    """Return events of all kinds, at random."""
    for number in range(count):
        yield an_event(EVENTS[number % len(EVENTS)], random)


def an_event(kind: Any, random: Random) -> Any:
    hints = get_type_hints(kind)
    return kind(*(_value(hints[name], random) for name in kind._fields))


def _value(kind: Any, random: Random) -> Any:
    if kind is int:
        return random.choice((0, 1, -1, 17, 1 << 63, random.getrandbits(64)))
    if kind is bool:
        return random.random() < 0.5
    if kind is str:
        return random.choice(NAMES)
    if kind is TxnID:
        return TxnID.of(random.randrange(3), random.randrange(1, 1 << 48), random.getrandbits(64))
    if kind == Participant:
        return _value(random.choice((PartitionName, SubscriptionName)), random)
    arguments = get_args(kind)
    if get_origin(kind) is tuple and arguments[-1] is Ellipsis:
        return tuple(_value(arguments[0], random) for _ in range(random.randrange(3)))
    if get_origin(kind) is tuple:
        return tuple(_value(one, random) for one in arguments)
    if type(None) in arguments:
        others = [one for one in arguments if one is not type(None)]
        return random.choice((None, _value(reduce(or_, others), random)))
    return an_event(kind, random)
