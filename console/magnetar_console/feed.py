"""Versions of a view's tables, and the changes between them. Pure.

A viewer names the version that it has, and gets the changes since, or all rows when there are too
many. So a slow viewer costs the console no memory: it gets the full state again.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Final

from magnetar_console.seen import Row, Table, Tables

CHANGES_MAX: Final = 64
CHANGE_BYTES_MAX: Final = 4 << 20


class Feed:
    """Tables of a view, as they change.

    Attributes:
        version: the number of changes so far.
    """

    def __init__(
        self, changes_max: int = CHANGES_MAX, change_bytes_max: int = CHANGE_BYTES_MAX
    ) -> None:
        self.version = 0
        self._tables: dict[str, dict[str, Row]] = {}
        # The text of each change, by the version that it leads to.
        self._changes: deque[tuple[int, str]] = deque()
        self._change_bytes = 0
        self._changes_max = changes_max
        self._change_bytes_max = change_bytes_max
        self._whole: tuple[int, str] = (-1, "")

    def replace(self, tables: Tables) -> bool:
        """Take the present tables. Return whether anything has changed.

        Args:
            tables: all tables; one that is missing has no rows.
        """
        names = dict.fromkeys((*self._tables, *tables))
        changed: dict[str, Any] = {}
        for name in names:
            difference = _difference(self._tables.get(name, {}), tables.get(name, {}))
            if difference is not None:
                changed[name] = difference
        if not changed:
            return False
        self._tables = {name: dict(tables.get(name, {})) for name in names}
        self.version += 1
        text = _text(changed)
        self._changes.append((self.version, text))
        self._change_bytes += len(text)
        while self._changes and (
            len(self._changes) > self._changes_max or self._change_bytes > self._change_bytes_max
        ):
            self._change_bytes -= len(self._changes.popleft()[1])
        return True

    def since(self, version: int | None) -> tuple[str, list[str]]:
        """Return the news for a viewer: ("state", all rows) or ("change", changes).

        Args:
            version: the version that the viewer has; None: it has none.
        """
        oldest = self._changes[0][0] - 1 if self._changes else self.version
        if version is None or not oldest <= version <= self.version:
            if self._whole[0] != self.version:
                self._whole = (self.version, _text(self._tables))
            return "state", [self._whole[1]]
        return "change", [text for number, text in self._changes if number > version]


def _difference(old: Table, new: Table) -> dict[str, Any] | None:
    """Return the rows that are new or different and the keys that are gone; None: no change."""
    changed = {key: row for key, row in new.items() if old.get(key) != row}
    gone = [key for key in old if key not in new]
    return {"set": changed, "gone": gone} if changed or gone else None


def _text(content: object) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)
