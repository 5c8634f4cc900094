"""Checks the arguments of an application, at the call, before anything happens. Pure.

`checked` reads the annotations of a public function, and `check_fields` those of a dataclass. A
wrong value raises InvalidArgument, which names the argument, what was given and what is accepted:
otherwise it would fail where a command is built, perhaps in a background task. Values of other
types with the same meaning are converted: an integer of numpy becomes int. Classes, and protocols
that can be checked at run time, are checked by isinstance.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import operator
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from magnetar_core.errors import InvalidArgument

P = ParamSpec("P")
R = TypeVar("R")
EnumT = TypeVar("EnumT", bound=Enum)

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
UINT32_MAX: Final = (1 << 32) - 1
# In seconds, longer than anything lasts, and still an int64 in milliseconds.
DURATION_MAX: Final = 10**12

# The range of an integer, by its name, where it is not from 0 to INT64_MAX: that of the field in
# which it travels.
RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "append_time_ms": (INT64_MIN, INT64_MAX),
    "producer_ids": (INT64_MIN, INT64_MAX),
    "producer_id": (INT64_MIN, INT64_MAX),
    "producer_epoch": (-(1 << 31), (1 << 31) - 1),
    **dict.fromkeys(
        ("most_bits", "least_bits", "topic_id", "stamp", "seen_stamp"), (0, (1 << 64) - 1)
    ),
    **dict.fromkeys(
        ("partition", "partitions", "tcid", "limit", "index", "messages_max", "bytes_max", "skip"),
        (0, UINT32_MAX),
    ),
}

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 60


def refusal(name: str, value: object, wanted: str) -> InvalidArgument:
    """Return the error for an argument.

    Args:
        wanted: the accepted values, as they follow "must be".
    """
    kind = type(value).__name__
    given = _shown.repr(value) if value is None else f"{_shown.repr(value)} ({kind})"
    return InvalidArgument(f"{name} must be {wanted}, and is {given}", argument=name)


def text(name: str, value: object) -> str:
    """Check a text.

    Raises:
        InvalidArgument: it is not a str, or has a lone surrogate, which UTF-8 cannot encode.
    """
    if not isinstance(value, str):
        raise refusal(name, value, "a str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise refusal(name, value, "a str without lone surrogates") from None
    return value


def integer(name: str, value: object, low: int, high: int) -> int:
    """Check an integer; what has __index__ counts as one, and a bool does not.

    Raises:
        InvalidArgument: it is not an integer from low to high.
    """
    wanted = f"an int from {low} to {high}"
    if isinstance(value, bool):
        raise refusal(name, value, wanted)
    try:
        found = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise refusal(name, value, wanted) from None
    if not low <= found <= high:
        raise refusal(name, value, wanted)
    return found


def number(name: str, value: object) -> float:
    """Check a number; a bool does not count as one.

    Raises:
        InvalidArgument: it is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
        raise refusal(name, value, "a number")
    # Any other kind of number, such as those of numpy, would surprise event loops.
    return float(value)


def copied(value: Any) -> Any:
    """Copy a buffer or a mapping, which its owner may change; return other values as they are.

    So is one that cannot be read: whatever checks it says what is wrong.
    """
    if value is None or type(value) is bytes:
        return value
    try:
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        if isinstance(value, Mapping):
            return dict(value)
    except Exception:
        pass
    return value


def enum_member(name: str, kind: type[EnumT], choice: object) -> EnumT:
    """Return the member of an enumeration that a caller has given, or named in any case.

    Raises:
        InvalidArgument: there is none of this name.
    """
    if isinstance(choice, kind):
        return choice
    names = [one.name.lower() for one in kind]
    if isinstance(choice, str) and choice.lower() in names:
        return kind[choice.upper()]
    raise refusal(name, choice, " or ".join(f'"{one}"' for one in names))


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Have a method's arguments checked, and converted, by its annotations."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def check_and_await(*args: Any, **kwargs: Any) -> Any:
            if len(args) > 1 or kwargs:
                positional, named = _arguments(function, args, kwargs)
                return await function(*positional, **named)
            return await function(*args)  # type: ignore[call-arg]

        return check_and_await  # type: ignore[return-value]

    @functools.wraps(function)
    def check_and_call(*args: Any, **kwargs: Any) -> Any:
        positional, named = _arguments(function, args, kwargs)
        return function(*positional, **named)

    return check_and_call


def check_fields(settings: Any) -> None:
    """Check and convert the fields of a dataclass, frozen or not, by their annotations.

    Raises:
        InvalidArgument: a field does not have the type that its annotation says.
    """
    kind: type = type(settings)
    checks = _checks_of_fields(kind)
    for field in fields(settings):
        value = getattr(settings, field.name)
        found = checks[field.name](field.name, value)
        if found is not value:
            object.__setattr__(settings, field.name, found)


# Checks a value and returns it, or what it was converted to. The name is that of the argument.
_Check = Callable[[str, Any], Any]


class _Kind(NamedTuple):
    """A type that an argument may have.

    Attributes:
        wanted: the type in messages for people.
        is_one: whether a value has the type, whatever its content.
        check: checks the content of such a value.
    """

    wanted: str
    is_one: Callable[[Any], bool]
    check: _Check


def _arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    positional, by_name = _checks_of_parameters(function)
    # More than there are parameters: the call itself says so.
    rest = args[len(positional) :]
    return (
        [check(name, value) for (name, check), value in zip(positional, args, strict=False)]
        + list(rest),
        {name: by_name.get(name, _unchecked)(name, value) for name, value in kwargs.items()},
    )


@functools.cache
def _checks_of_parameters(
    function: Callable[..., Any],
) -> tuple[list[tuple[str, _Check]], dict[str, _Check]]:
    hints = typing.get_type_hints(function)
    by_name = {
        name: check_of(hints[name]) if name in hints else _unchecked
        for name in inspect.signature(function).parameters
    }
    return list(by_name.items()), by_name


@functools.cache
def _checks_of_fields(settings: type) -> dict[str, _Check]:
    return {name: check_of(hint) for name, hint in typing.get_type_hints(settings).items()}


def _unchecked(name: str, value: Any) -> Any:
    return value


def check_of(hint: Any) -> _Check:
    """Return a function that checks a value of a type, given the name of the argument."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kinds = [_kind_of(one) for one in (typing.get_args(hint) if is_union else (hint,))]

    def check(name: str, value: Any) -> Any:
        for kind in kinds:
            if kind.is_one(value):
                return kind.check(name, value)
        raise refusal(name, value, " or ".join(kind.wanted for kind in kinds))

    return check


def _kind_of(hint: Any) -> _Kind:
    if hint in _PLAIN_KINDS:
        return _PLAIN_KINDS[hint]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        # enum_member says which texts there are.
        return _PLAIN_KINDS[str]
    if origin in (Sequence, Iterable):
        return _items(origin, inner[0])
    if origin is Mapping:
        return _mapping(*map(check_of, inner))
    if origin is Callable:
        return _Kind("a callable", callable, _unchecked)
    if not isinstance(hint, type):
        return _Kind("anything", lambda value: True, _unchecked)
    if issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return _named_tuple(hint)
    return _Kind(f"a {hint.__name__}", lambda value: isinstance(value, hint), _unchecked)


def _items(origin: Any, inner: Any) -> _Kind:
    """Return the kind of a sequence. A value becomes a tuple, which the caller cannot change."""
    check = check_of(inner)

    def check_each(name: str, value: Any) -> tuple[Any, ...]:
        return tuple(check(name, one) for one in value)

    return _Kind(
        "several of them" if origin is Sequence else "an iterable",
        lambda value: isinstance(value, origin) and not isinstance(value, str | bytes),
        check_each,
    )


def _mapping(check_key: _Check, check_value: _Check) -> _Kind:
    """A mapping stays the object that it is: it may know more than its items."""

    def check_items(name: str, value: Any) -> Any:
        for key, item in value.items():
            check_key(name, key)
            check_value(name, item)
        return value

    return _Kind("a mapping", lambda value: isinstance(value, Mapping), check_items)


def _named_tuple(hint: Any) -> _Kind:
    """An id of several parts; a plain tuple of as many becomes one."""
    checks = _checks_of_fields(hint)

    def check_parts(name: str, value: Any) -> Any:
        parts = zip(checks.items(), value, strict=True)
        return hint(*(check(f"{name}.{part}", one) for (part, check), one in parts))

    return _Kind(
        f"a {hint.__name__}",
        lambda value: isinstance(value, tuple) and len(value) == len(checks),
        check_parts,
    )


def _check_integer(name: str, value: Any) -> int:
    low, high = RANGES.get(name.rpartition(".")[2], (0, INT64_MAX))
    return integer(name, value, low, high)


def _check_duration(name: str, value: Any) -> float:
    found = number(name, value)
    if not 0 <= found <= DURATION_MAX:
        raise refusal(name, value, f"a number from 0 to {DURATION_MAX}")
    return value if type(value) in (int, float) else found


_PLAIN_KINDS: Final[Mapping[Any, _Kind]] = {
    str: _Kind("a str", lambda value: isinstance(value, str), text),
    int: _Kind(
        "an int",
        lambda value: hasattr(value, "__index__") and not isinstance(value, bool),
        _check_integer,
    ),
    float: _Kind(
        "a number",
        lambda value: isinstance(value, numbers.Real) and not isinstance(value, bool),
        _check_duration,
    ),
    bool: _Kind("a bool", lambda value: isinstance(value, bool), _unchecked),
    types.NoneType: _Kind("None", lambda value: value is None, _unchecked),
    Any: _Kind("anything", lambda value: True, _unchecked),
}
