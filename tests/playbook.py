"""Reactions of a server in memory to commands, as a test prescribes them.

A server has a part of its own: it answers every command as a real one would. A Playbook stands
before it, logs what comes, and reacts in the server's place where a test says so:

    play.when("send").always(HOLD)                  # every send waits for release()
    play.when("ack", consumer_id=7).once(LOSE)      # the link breaks before the next such ack
    play.when("send").in_turn(None, BREAK)          # the second send is stored, and not answered
    play.forget()                                   # the server answers again

    play.scene(                                     # these, in this order, and then nothing more
        Expect("new_txn"),
        Expect("end_txn", reaction=DROP, txn_action=COMMIT),
        Expect("end_txn", txn_action=COMMIT),
    )

What was announced and never came fails the test, and so does what came out of turn: the failure
says what was expected, and what came instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import text_format
from tests.fake_link import FakeLink
from tests.waiting import until

from magnetar.testing.envelope import command
from magnetar_core.errors import MagnetarError
from magnetar_core.wire import service_pb2

# What can become of a command. Besides: an error or an answer that is given in the server's place;
# None: the server does its part; a function of the command, which says any of these.
DROP = "drop"  # handled, never answered
LOSE = "lose"  # the link breaks before it arrives
BREAK = "break"  # handled, and the link breaks before the answer
HOLD = "hold"  # neither handled nor answered until release()

SHOWN_COUNT = 12
SHOWN_CHARACTERS = 160

Handle = Callable[[FakeLink, str, Any], Any]


class NotAsPlayed(AssertionError):
    """The client did something else than the playbook says."""


class Expect:
    """A line of a scene: a command that comes now, and what becomes of it.

    Args:
        fields: of the command, with the values that they must have, or functions that say whether
            they fit.
    """

    def __init__(self, name: str, *, reaction: object = None, **fields: object) -> None:
        self.name = name
        self.reaction = reaction
        self.fields = fields

    def fits(self, name: str, body: Any) -> bool:
        return name == self.name and _has(body, self.fields)

    def __str__(self) -> str:
        return _words((self.name,), self.fields)


@dataclass
class Cue:
    """Commands of these names and with these fields, and what becomes of them.

    Each `in_turn` adds to what becomes of the next ones; when that is used up, the cue is over.
    """

    names: tuple[str, ...]
    fields: dict[str, object]
    each_time: object = None
    turns: deque[object] = field(default_factory=deque)

    def always(self, reaction: object) -> None:
        """React so every time."""
        self.each_time = reaction

    def once(self, reaction: object) -> None:
        """React so to the next one, which must come."""
        self.turns.append(reaction)

    def in_turn(self, *reactions: object) -> None:
        """React so to the next ones, one after the other; all of them must come."""
        self.turns.extend(reactions)

    def on(self, *places: int, reaction: object) -> None:
        """React so to the first, the third, ... of them; the places count from 1."""
        self.in_turn(*(reaction if one in places else None for one in range(1, max(places) + 1)))

    def fits(self, name: str, body: Any) -> bool:
        return name in self.names and _has(body, self.fields)

    def take(self) -> object:
        return self.turns.popleft() if self.turns else self.each_time

    def __str__(self) -> str:
        return _words(self.names, self.fields)


class Playbook:
    """Stands before a server, between it and the links of its clients.

    Attributes:
        received: names and bodies of all that came.
        asked: addresses and names of it.
        held: what waits for release().
        improvise: decides where no cue does; for random faults.
    """

    def __init__(self, handle: Handle, after: Callable[[], None]) -> None:
        """Args:
        after: called when the server has handled a command, and its answer is on its way.
        """
        self._handle = handle
        self._after = after
        self.received: list[tuple[str, Any]] = []
        self.asked: list[tuple[str, str]] = []
        self.held: list[tuple[FakeLink, int, str, Any]] = []
        self.improvise: Callable[[str, Any], object] = lambda name, body: None
        self._cues: list[Cue] = []
        self._scene: Sequence[Expect] = ()
        self._line = 0
        self._failure: NotAsPlayed | None = None

    # What a test says.

    def when(self, *names: str, **fields: object) -> Cue:
        """A cue for commands of these names; it goes before those that were given earlier."""
        cue = Cue(names, fields)
        self._cues.insert(0, cue)
        return cue

    def scene(self, *lines: Expect) -> None:
        """Expect commands in this order, and no other commands of these names."""
        self.check()
        self._scene, self._line = lines, 0

    def forget(self) -> None:
        """The server does its part again, whatever comes. Raises: as check."""
        self.check()
        self._cues.clear()
        self._scene = ()
        self.improvise = lambda name, body: None

    def release(self) -> None:
        """Let the server handle what was held."""
        held, self.held = self.held, []
        for link, request_id, name, body in held:
            self._answer(link, request_id, name, body)

    # What a test asks.

    def commands(self, name: str) -> list[Any]:
        """All commands of a name that came."""
        return [body for one, body in self.received if one == name]

    async def came(self, name: str, count: int | None = None) -> list[Any]:
        """Wait until so many commands of a name have come, or any.

        Raises:
            NotAsPlayed: they did not.
        """
        await self._until(lambda: _are(len(self.commands(name)), count), f"{count or 'any'} {name}")
        return self.commands(name)

    async def holds(self, count: int | None = None) -> None:
        """Wait until so many commands are held, or any.

        Raises:
            NotAsPlayed: they are not.
        """
        await self._until(lambda: _are(len(self.held), count), f"{count or 'any'} to be held")

    async def _until(self, condition: Callable[[], object], what: str) -> None:
        try:
            await until(condition)
        except TimeoutError:
            raise self._not_as_played(what) from None

    def check(self) -> None:
        """All that was announced has come.

        Raises:
            NotAsPlayed: it has not, or something came out of turn.
        """
        if self._failure is not None:
            raise self._failure
        if self._line < len(self._scene):
            raise self._not_as_played(self._place())
        for cue in self._cues:
            if cue.turns:
                raise self._not_as_played(f"{cue}, {len(cue.turns)} more of them")

    # What the links tell.

    def on_frame(self, link: FakeLink, frame: service_pb2.Frame) -> None:
        for one in frame.commands:
            name = one.WhichOneof("body")
            assert name is not None
            body = getattr(one, name)
            self.received.append((name, body))
            self.asked.append((link.address, name))
            reaction = self._reaction(name, body)
            if callable(reaction):
                reaction = reaction(body)
            if isinstance(reaction, MagnetarError):
                link.push(command(reaction.to_wire(), one.request_id))
            elif reaction == LOSE:
                link.break_now()
                return
            elif reaction == HOLD:
                self.held.append((link, one.request_id, name, body))
            elif reaction in (None, DROP, BREAK):
                self._answer(link, one.request_id, name, body, silent=reaction is not None)
                if reaction == BREAK:
                    link.break_now()
                    return
            else:
                link.push(command(reaction, one.request_id))

    def _reaction(self, name: str, body: Any) -> object:
        if any(name == line.name for line in self._scene):
            return self._next_line(name, body).reaction
        for cue in self._cues:
            if cue.fits(name, body) and (cue.turns or cue.each_time is not None):
                return cue.take()
        return self.improvise(name, body)

    def _next_line(self, name: str, body: Any) -> Expect:
        if self._line < len(self._scene) and self._scene[self._line].fits(name, body):
            self._line += 1
            return self._scene[self._line - 1]
        self._failure = self._not_as_played(self._place())
        raise self._failure

    def _answer(
        self, link: FakeLink, request_id: int, name: str, body: Any, *, silent: bool = False
    ) -> None:
        try:
            reply = self._handle(link, name, body)
        except MagnetarError as error:
            reply = error.to_wire()
        if reply is not None and not silent:
            link.push(command(reply, request_id))
        self._after()

    # What it says when it fails.

    def _place(self) -> str:
        if self._line == len(self._scene):
            return f"nothing more, after all {self._line} lines of the scene"
        return f"{self._scene[self._line]}, line {self._line + 1} of {len(self._scene)}"

    def _not_as_played(self, expected: str) -> NotAsPlayed:
        came = [f"  {_shown(name, body)}" for name, body in self.received[-SHOWN_COUNT:]]
        last = "\n".join(came) or "  nothing"
        return NotAsPlayed(f"expected: {expected}\ncame, the newest last:\n{last}")


def _are(number: int, wanted: int | None) -> bool:
    return number == wanted if wanted is not None else number > 0


def _has(body: Any, fields: dict[str, object]) -> bool:
    return all(
        value(getattr(body, name)) if callable(value) else getattr(body, name) == value
        for name, value in fields.items()
    )


def _words(names: Sequence[str], fields: dict[str, object]) -> str:
    text = " or ".join(names)
    if fields:
        text += " with " + ", ".join(f"{name}={value!r}" for name, value in fields.items())
    return text


def _shown(name: str, body: Any) -> str:
    text = text_format.MessageToString(body, as_one_line=True)
    if len(text) > SHOWN_CHARACTERS:
        text = text[:SHOWN_CHARACTERS] + "..."
    return f"{name} {text}".rstrip()
