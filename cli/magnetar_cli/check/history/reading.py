"""Reads the lines of a server's lives, one after the other, and notes what is wrong with them.

What is wrong with lines is told from what is wrong with events: a reader stops at the first place
where it does not know what the server has done, and what comes after it in this life is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from magnetar_core.config import InvalidConfig
from magnetar_core.history.event_text import EventUnknown, from_json
from magnetar_core.history.events import Event, Life, Server
from magnetar_core.recording.lines import (
    BEGUN,
    CLOSED,
    STOPPED,
    SUFFIX,
    VOCABULARY,
    Line,
    LineDamaged,
    life_of_file,
    parse_line,
)

# Damages of a server that a report lists; all are counted.
DAMAGES_KEPT = 20


class Entry(NamedTuple):
    """An event that a line tells."""

    life: Life
    number: int
    time: int
    event: Event


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is wrong with lines. `line`: the place in the file, from 1."""

    file: str
    line: int
    text: str


@dataclass(slots=True)
class LifeReport:
    """Report of a life, as far as its file is read.

    Attributes:
        is_closed: its last line says that it ended in order.
        stopped: why it was not recorded to its end; empty: it was, as far as is known.
        boot: the run of the machine's system in which it was; empty: unknown.
        unjudged_from: the number of the first line that is not known; None: all are.
    """

    life: Life
    file: str
    name: str = ""
    boot: str = ""
    is_closed: bool = False
    stopped: str = ""
    line_count: int = 0
    is_torn: bool = False
    unjudged_from: int | None = None

    @property
    def is_broken_off(self) -> bool:
        """Whether events of this life are missing that it has had for sure."""
        return self.unjudged_from is not None or bool(self.stopped)


@dataclass(slots=True)
class Lines:
    """The lines of a server: its lives in order.

    Attributes:
        lives: what is known of those that have been read so far.
    """

    server: Server
    files: Sequence[Path]
    lives: list[LifeReport] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    damage_count: int = 0
    event_count: int = 0

    def read(self) -> Iterator[Entry]:
        """Read the events, from the first life on, up to the first one that is not known.

        Later lives are read for damages only: what they should have found is not known.

        Raises:
            InvalidConfig: a file cannot be read.
        """
        self.lives, self.damages = [], []
        self.damage_count = self.event_count = 0
        is_known = True
        for path in self.files:
            life = life_of_file(path.name)
            assert life is not None
            report = LifeReport(life, str(path))
            self.lives.append(report)
            try:
                with path.open("rb") as file:
                    for entry in self._read_life(report, file):
                        if is_known:
                            self.event_count += 1
                            yield entry
            except OSError as error:
                raise InvalidConfig(f"{path} cannot be read: {error.strerror}") from error
            is_known = is_known and not report.is_broken_off

    def _damage(self, report: LifeReport, place: int, text: str) -> None:
        self.damage_count += 1
        if len(self.damages) < DAMAGES_KEPT:
            self.damages.append(Damage(report.file, place, text))

    def _read_life(self, report: LifeReport, raw: Iterable[bytes]) -> Iterator[Entry]:
        for line in self._in_order(report, raw):
            entry = self._entry(report, line)
            if entry is not None and report.unjudged_from is None:
                yield entry

    def _in_order(self, report: LifeReport, raw: Iterable[bytes]) -> Iterator[Line]:
        """Return the lines in the order of their numbers, each once."""
        expected = 0
        held: Line | None = None
        for place, text in enumerate(raw, 1):
            line = self._parsed(report, place, text)
            if line is None:
                continue
            if held is not None and line.number != expected:
                self._missing(report, place, expected, held.number)
                yield held
                expected = held.number + 1
                held = None
            if line.number < expected:
                self._damage(report, place, f"line {line.number} is there a second time")
                continue
            if line.number == expected + 1:
                # It may have changed its place with the next line.
                held = line
                continue
            if line.number > expected:
                self._missing(report, place, expected, line.number)
            yield line
            expected = line.number + 1
            if held is not None:
                self._damage(report, place, f"lines {line.number} and {held.number} are swapped")
                yield held
                expected = held.number + 1
                held = None
        if held is not None:
            self._missing(report, held.number, expected, held.number)
            yield held
            expected = held.number + 1
        report.line_count = expected

    def _parsed(self, report: LifeReport, place: int, text: bytes) -> Line | None:
        try:
            line = parse_line(text)
        except LineDamaged as error:
            if not text.endswith(b"\n"):
                report.is_torn = True
            else:
                self._damage(report, place, str(error))
            return None
        if line.life != report.life:
            self._damage(report, place, f"it is a line of {line.life}")
            return None
        return line

    def _missing(self, report: LifeReport, place: int, first: int, end: int) -> None:
        which = f"line {first} is" if end - first == 1 else f"lines {first} to {end - 1} are"
        self._damage(report, place, f"{which} missing")
        if report.unjudged_from is None:
            report.unjudged_from = first

    def _entry(self, report: LifeReport, line: Line) -> Entry | None:
        if report.is_closed or report.stopped:
            self._damage(report, line.number + 1, f"line {line.number} comes after the last one")
        if (line.event == BEGUN) != (line.number == 0):
            self._damage(report, line.number + 1, f"line {line.number} is {line.event}")
        if line.event == BEGUN:
            self._begin(report, line)
            self._compare_with_life_before(report, line)
        elif line.event == CLOSED:
            report.is_closed = True
        elif line.event == STOPPED:
            report.stopped = str(line.members.get("reason"))
        else:
            try:
                return Entry(line.life, line.number, line.time, from_json(line.members))
            except EventUnknown as error:
                self._damage(report, line.number + 1, str(error))
                if report.unjudged_from is None:
                    report.unjudged_from = line.number
        return None

    def _compare_with_life_before(self, report: LifeReport, line: Line) -> None:
        """Note lines that an earlier life had when this one began, and that are not there now.

        It is the one before in the same directory: that of another machine has other lives.
        """
        before, number = line.members.get("life_before"), line.members.get("last_line_before")
        if not isinstance(before, int) or not isinstance(number, int):
            return
        earlier = next((one for one in self.lives if one.life.number == before), None)
        if earlier is not None and number >= earlier.line_count:
            self._missing(earlier, earlier.line_count, earlier.line_count, number + 1)
        elif earlier is None and before > self.lives[0].life.number:
            self._damage(report, 1, f"the file of life {before} before it is missing")
        else:
            return
        report.unjudged_from = 0

    @staticmethod
    def _begin(report: LifeReport, line: Line) -> None:
        vocabulary = line.members.get("vocabulary")
        if vocabulary != VOCABULARY:
            raise InvalidConfig(
                f"{report.file} was written by Magnetar {line.members.get('version')}, whose"
                f" histories have version {vocabulary}; this one reads version {VOCABULARY}:"
                " check it with that version"
            )
        report.name, report.boot = str(line.members.get("name")), str(line.members.get("boot"))


def lines_at(places: Sequence[str]) -> list[Lines]:
    """Find the files of histories, by server.

    Args:
        places: files, and directories with files of histories in them or below.
    Raises:
        InvalidConfig: there is no such file, or two of the same life.
    """
    found: dict[Life, Path] = {}
    for place in places:
        path = Path(place)
        files = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not files:
            raise InvalidConfig(f"{place} has no history: no file NAME{SUFFIX} is in it")
        for file in files:
            life = life_of_file(file.name)
            if life is None or not file.is_file():
                raise InvalidConfig(
                    f"{file} is not the history of a server: servers name them as"
                    f" broker-0.001764266793123{SUFFIX}"
                )
            if found.setdefault(life, file).resolve() != file.resolve():
                raise InvalidConfig(f"{found[life]} and {file} are both of {life}: give one")
    servers: dict[Server, list[Path]] = {}
    for life in sorted(found):
        servers.setdefault(life.server, []).append(found[life])
    return [Lines(server, files) for server, files in servers.items()]
