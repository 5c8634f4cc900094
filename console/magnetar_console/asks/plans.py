"""Plans: what an action will do, told before it is confirmed, and carried out only if that holds.

The servers decide whether it is allowed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from magnetar import Client, InvalidArgument

audit = logging.getLogger("magnetar_console.audit")


@dataclass(frozen=True, slots=True)
class Plan:
    """An action, as the viewer is told of it.

    Attributes:
        question: what is asked.
        sentences: what will happen, and what will be lost.
        yes: the text of the button that carries it out.
        deed: what is done, for the log, as in "aborts 0:1:7".
        work: carries it out, and returns what has become of it, as a sentence.
    """

    question: str
    sentences: tuple[str, ...]
    yes: str
    deed: str
    work: Callable[[], Awaitable[str]]

    @property
    def seen(self) -> str:
        """The mark of what is told. Another plan has another one."""
        content = "\n".join((self.question, *self.sentences, self.deed))
        return hashlib.sha256(content.encode()).hexdigest()

    def told(self) -> dict[str, Any]:
        """Return it as a page shows it."""
        return {
            "question": self.question,
            "sentences": self.sentences,
            "yes": self.yes,
            "seen": self.seen,
        }


# Makes a plan of what a page sends. Raises: MagnetarError.
Planning: TypeAlias = Callable[[Client, dict[str, Any]], Awaitable[Plan]]


async def tell(planning: Planning, client: Client, body: dict[str, Any]) -> dict[str, Any]:
    """Tell what an action would do.

    Raises:
        InvalidArgument: the request is not complete, or there is nothing to do.
        MagnetarError: the servers refuse.
    """
    return (await planning(client, body)).told()


async def carry_out(
    planning: Planning, client: Client, body: dict[str, Any], viewer: str
) -> dict[str, Any]:
    """Carry out an action, if it is still what the viewer has confirmed.

    Args:
        body: what `tell` had, and "seen", the mark that it returned.
        viewer: who asks, for the log.
    Raises:
        InvalidArgument: the request is not complete, or something else would happen.
        MagnetarError: the servers refuse.
    """
    plan = await planning(client, body)
    if body.get("seen") != plan.seen:
        raise InvalidArgument("it has changed since you looked: look again at what will happen")
    audit.warning("%s %s", viewer, plan.deed)
    try:
        text = await plan.work()
    except Exception as error:
        audit.warning("%s %s: it failed: %s", viewer, plan.deed, error)
        raise
    audit.warning("%s %s: %s", viewer, plan.deed, text)
    return {"text": text}


def text_of(body: dict[str, Any], name: str, characters_max: int = 1_000) -> str:
    """Return a text of a request; empty: it has none. Raises: InvalidArgument."""
    value = body.get(name, "")
    if not isinstance(value, str) or len(value) > characters_max:
        raise InvalidArgument(f"{name} must be a text of at most {characters_max:,} characters")
    return value.strip()


def number_of(body: dict[str, Any], name: str) -> int:
    """Return a number of a request; 0: it has none. Raises: InvalidArgument."""
    value = body.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 1 << 63:
        raise InvalidArgument(f"{name} must be a number")
    return value
