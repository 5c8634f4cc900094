"""Errors as one line that says what happened and what to do next."""

from __future__ import annotations

import click

from magnetar_core.config import InvalidConfig
from magnetar_core.errors import LogUnavailable, MagnetarError, OutcomeUnknown
from magnetar_core.transport import LinkClosed

_START_ONE = "is it running? `magnetar standalone` starts one, --broker names another"


def explain(error: Exception) -> click.ClickException:
    """What a user is told of an error; exit status 1."""
    text = _one_line(str(error)) or type(error).__name__
    if isinstance(error, LinkClosed):
        return click.ClickException(f"{text}; {_START_ONE}")
    if isinstance(error, MagnetarError):
        return click.ClickException(_of_magnetar(error, text))
    if isinstance(error, InvalidConfig):
        return click.ClickException(text)
    if isinstance(error, OSError):
        return click.ClickException(f"{text}; check the path and its permissions")
    if isinstance(error, ModuleNotFoundError):
        return click.ClickException(
            f"{text}; servers need more packages: pip install 'magnetar[server]'"
        )
    if type(error).__name__ in ("StoreInUse", "StoreFailed", "StoreDamaged"):
        return click.ClickException(text)
    return click.ClickException(
        f"{type(error).__name__}: {text}; this is a bug: --debug shows where"
    )


def _of_magnetar(error: MagnetarError, text: str) -> str:
    """The message, and the reaction that the error's own documentation asks for."""
    if isinstance(error, LogUnavailable | OutcomeUnknown) and isinstance(
        error.__cause__, LinkClosed
    ):
        return f"{_one_line(str(error.__cause__))}; {_START_ONE}"
    advice = _one_line(type(error).__doc__ or "")
    return f"{type(error).__name__}: {text}" + ("" if text == advice else f" ({advice})")


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
