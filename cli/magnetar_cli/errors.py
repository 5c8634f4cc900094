"""Errors as a single line that says what happened and what to do next, with an exit status."""

from __future__ import annotations

import errno

import click

from magnetar_core.config import InvalidConfig
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import LogUnavailable, MagnetarError, OutcomeUnknown
from magnetar_core.transport.transport import LinkClosed, LinkRefused

_START_ONE = "is it running? `magnetar standalone` starts one, --broker names another"
_CLOSED_STREAM = (
    "standard input or output is closed, so what is printed is lost, and nothing can be read:"
    " redirect it to a file, a pipe or /dev/null"
)
# With which the command line exits; `magnetar --help` and docs/errors.md tell them. Click exits
# with 2 where the command line itself is wrong.
STATUS_OF_KIND = {
    ErrorKind.FIX: 1,
    ErrorKind.RETRY: 10,
    ErrorKind.LOOK_UP: 10,
    ErrorKind.ASK_OUTCOME: 11,
    ErrorKind.START_OVER: 12,
    ErrorKind.DONE: 13,
    ErrorKind.FENCED: 14,
    ErrorKind.LIMIT: 15,
    ErrorKind.DATA_LOST: 16,
    ErrorKind.BUG: 17,
}
# By name, so that the command line imports the packages of none of them.
_FIXED_BY_THE_CALLER = {
    *("StoreInUse", "StoreFailed"),
    *("NoCluster", "WrongName", "NobodyTakesShards", "CannotOpen"),
}


def explain(error: Exception) -> click.ClickException:
    """Return the message for an error; its exit status says what kind of error it is."""
    text = _one_line(str(error)) or type(error).__name__
    names = {one.__name__ for one in type(error).__mro__}
    if isinstance(error, LinkRefused):
        return _failure(text, ErrorKind.FIX)
    if isinstance(error, LinkClosed):
        return _failure(f"{text}; {_START_ONE}", ErrorKind.RETRY)
    if isinstance(error, MagnetarError):
        return _failure(_of_magnetar(error, text), error.kind)
    if isinstance(error, InvalidConfig):
        return _failure(text, ErrorKind.FIX)
    if "ClusterDirectoryWentBack" in names:
        return _failure(text, ErrorKind.RETRY)
    if "ClusterDirectoryUnavailable" in names:
        return _failure(f"{text}; is etcd running? --etcd names its members", ErrorKind.RETRY)
    if isinstance(error, OSError) and error.errno == errno.EBADF:
        return _failure(_CLOSED_STREAM, ErrorKind.FIX)
    if isinstance(error, OSError):
        return _failure(f"{text}; check the path and its permissions", ErrorKind.FIX)
    if isinstance(error, ModuleNotFoundError):
        return _failure(
            f"{text}; servers need more packages: pip install 'magnetar[server]'", ErrorKind.FIX
        )
    if "StoreDamaged" in names:
        return _failure(text, ErrorKind.DATA_LOST)
    if names & _FIXED_BY_THE_CALLER:
        return _failure(text, ErrorKind.FIX)
    return _failure(
        f"{type(error).__name__}: {text}; this is a bug: --debug shows where", ErrorKind.BUG
    )


def _failure(text: str, kind: ErrorKind) -> click.ClickException:
    failure = click.ClickException(text)
    # Click reads it from the instance.
    failure.exit_code = STATUS_OF_KIND[kind]  # type: ignore[misc]
    return failure


def _of_magnetar(error: MagnetarError, text: str) -> str:
    """Return the message of an error, and what to do next."""
    if isinstance(error, LogUnavailable | OutcomeUnknown) and isinstance(
        error.__cause__, LinkClosed
    ):
        return f"{_one_line(str(error.__cause__))}; {_START_ONE}"
    meaning = _one_line(f"{error.happened} {error.advice}")
    return f"{type(error).__name__}: {text}" + ("" if text == meaning else f" ({meaning})")


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
