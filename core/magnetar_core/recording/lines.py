"""Lines of a history's files. Pure.

A line is a JSON object: its running number in the life, the server and its life, a time, the event,
and a check (CRC-32) of all that stands before the check. So a reader can tell a line that is
missing, doubled, moved or changed from an event that breaks a rule.

    {"line":17,"server":"broker 0","life":1764266793123,"time":115607...,"event":"Sealed",
        "position":3,"crc":"1f60a7c2"}

The first line of a life describes it (BEGUN), and the last one says that it ended in order (CLOSED)
or why it was not recorded any further (STOPPED).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from magnetar_core.history.events import BROKER, COORDINATOR, Life, Server

# Raised when events or their fields change in a way that an earlier reader would misread.
VOCABULARY: Final = 1
BEGUN: Final = "Begun"
CLOSED: Final = "Closed"
STOPPED: Final = "Stopped"
SUFFIX: Final = ".history.jsonl"

_CRC: Final = b',"crc":"'
_END: Final = b'%b,"crc":"%08x"}\n'
# Eight digits, a quote, a brace and the end of the line.
_END_BYTES: Final = len(_CRC) + 11


class LineDamaged(ValueError):
    """A text is not a line of a history, or its check does not fit; the text says which."""


class Line(NamedTuple):
    """A line whose check fits.

    Attributes:
        time: when it was written, as a stamp of a hybrid clock: milliseconds since the Unix epoch
            above 16 bits of a counter. It never goes back in a life; clocks of servers may differ.
        members: all members of its object; the event's among them.
    """

    number: int
    life: Life
    time: int
    event: str
    members: Mapping[str, Any]


class LineWriter:
    """Writes the lines of a life, with running numbers.

    Attributes:
        count: lines so far.
    """

    def __init__(self, life: Life) -> None:
        self.count = 0
        self._head = f',"server":"{life.server}","life":{life.number},"time":'

    def line(self, time: int, event: str) -> bytes:
        """Return the next line.

        Args:
            event: its members, as to_text() of event_text returns them.
        """
        text = f'{{"line":{self.count}{self._head}{time},{event}'.encode()
        self.count += 1
        return _END % (text, crc32(text))


def parse_line(text: bytes) -> Line:
    """Read a line, which ends with its newline.

    Raises:
        LineDamaged: it is not a line, or its check does not fit.
    """
    content, end = text[:-_END_BYTES], text[-_END_BYTES:]
    if end != b'%b%08x"}\n' % (_CRC, crc32(content)):
        raise LineDamaged("its check does not fit" if text.endswith(b"\n") else "it has no end")
    try:
        members = json.loads(text)
        kind, _, number = members["server"].partition(" ")
        life = Life(Server(kind, int(number)), members["life"])
        line = Line(members["line"], life, members["time"], members["event"], members)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LineDamaged(f"it is not a line of a history: {error!r}") from error
    if kind not in (BROKER, COORDINATOR) or not isinstance(line.event, str):
        raise LineDamaged(f"it is not a line of a history: {kind!r} is not a kind of server")
    if any(type(one) is not int for one in (line.number, life.number, line.time)):
        raise LineDamaged("it is not a line of a history: a number in it is not one")
    return line


def file_name(life: Life) -> str:
    """Return the name of the file of a life."""
    return f"{life.server.kind}-{life.server.number}.{life.number:015}{SUFFIX}"


def life_of_file(name: str) -> Life | None:
    """Return the life whose file has this name; None: it is another file."""
    server, _, number = name.removesuffix(SUFFIX).partition(".")
    kind, _, shard = server.partition("-")
    if kind not in (BROKER, COORDINATOR) or not name.endswith(SUFFIX):
        return None
    if not (shard.isdecimal() and number.isdecimal()):
        return None
    return Life(Server(kind, int(shard)), int(number))
