"""A file whose content counts as soon as it changes; a damaged new one leaves the former."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from magnetar_core.config import InvalidConfig
from magnetar_core.security.pem_files import read, stamp_of

log = logging.getLogger(__name__)

Content = TypeVar("Content")


class WatchedFile(Generic[Content]):
    """What a file says now.

    Args:
        parse: reads the content, and raises ValueError if it cannot.
    Raises:
        InvalidConfig: the file cannot be read.
    """

    def __init__(self, file: str, parse: Callable[[bytes], Content]) -> None:
        self._file = file
        self._parse = parse
        self._stamp = stamp_of(file)
        self.content = self._read()
        # How often a new content could not be read.
        self.damaged_count = 0

    def refresh(self) -> bool:
        """Look at the file, and return whether its content is a new one."""
        stamp = stamp_of(self._file)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self.content = self._read()
        except InvalidConfig as error:
            # Who writes a file in place is seen in the middle; its next change is looked at again.
            self.damaged_count += 1
            log.error("a new file is not used, what it said before stays: %s", error)
            return False
        log.info("%s has changed, and counts from now on", self._file)
        return True

    def _read(self) -> Content:
        try:
            return self._parse(read(self._file))
        except InvalidConfig:
            raise
        except ValueError as error:
            raise InvalidConfig(f"{self._file} is damaged: {error}") from None
