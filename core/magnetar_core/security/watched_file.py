"""A file whose content counts as soon as it changes; a damaged new one leaves the former."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from magnetar_core.config import InvalidConfig
from magnetar_core.security.pem_files import read, stamp_of

log = logging.getLogger(__name__)

Content = TypeVar("Content")

# How long what a file said before may still count.
LOOK_INTERVAL_MS = 500


class WatchedFile(Generic[Content]):
    """Current content of a file.

    Attributes:
        content: of the file when it could last be used.
        read_count: how often it was read and could be used.
        damaged_count: how often it changed and could not be used.

    Args:
        parse: reads the content, and raises ValueError if it cannot.
        bytes_max: a larger file is not used; None: it may have any size.
        is_secret: a file that all users of the machine may read is not used.
    Raises:
        InvalidConfig: the file cannot be read, or used.
    """

    def __init__(
        self,
        file: str,
        parse: Callable[[bytes], Content],
        *,
        bytes_max: int | None = None,
        is_secret: bool = False,
    ) -> None:
        self._file = file
        self._parse = parse
        self._bytes_max = bytes_max
        self._is_secret = is_secret
        self.read_count = self.damaged_count = 0
        # Before it is read: what is written meanwhile is read again.
        self._stamp = stamp_of(file)
        self.content = self._read()

    def refresh(self) -> bool:
        """Look at the file, and return whether its content is a new one."""
        before, self._stamp = self._stamp, stamp_of(self._file)
        if self._stamp == before:
            return False
        try:
            self.content = self._read()
        except InvalidConfig as error:
            # A program that writes a file in place is seen in the middle; the next change is looked
            # at again.
            if self._stamp != before:
                self.damaged_count += 1
                log.error(
                    "a changed file is not used, its previous content stays in force: %s", error
                )
            return False
        # As a warning: it decides about who may do what, and most levels show it.
        log.warning("%s has changed, and counts from now on", self._file)
        return True

    def _read(self) -> Content:
        try:
            content = read(self._file, self._bytes_max, is_secret=self._is_secret)
        except InvalidConfig:
            # New permissions do not count as a change of the file: it is tried again with every
            # look.
            self._stamp = None
            raise
        try:
            if self._bytes_max is not None and len(content) > self._bytes_max:
                raise ValueError(f"it has more than {self._bytes_max} bytes")
            found = self._parse(content)
        except ValueError as error:
            raise InvalidConfig(f"{self._file} cannot be used: {error}") from None
        self.read_count += 1
        return found


class FreshFile(Generic[Content]):
    """A watched file that is looked at when its content is asked for, twice a second at most.

    Args:
        now_ms: of a monotonic clock.
    """

    def __init__(self, file: WatchedFile[Content], now_ms: Callable[[], float]) -> None:
        self._file = file
        self._now_ms = now_ms
        self._looked_at_ms = now_ms()

    def content(self) -> Content:
        """Return the content of the file at the last look, which was a moment ago."""
        if self._now_ms() - self._looked_at_ms >= LOOK_INTERVAL_MS:
            self.look()
        return self._file.content

    def look(self) -> bool:
        """Look at the file now, and return whether its content is a new one."""
        self._looked_at_ms = self._now_ms()
        return self._file.refresh()
