"""Reads the screen of an app of Textual."""

from __future__ import annotations

import re
from collections import defaultdict
from html import unescape
from typing import Any

from tests.waiting import until
from textual.app import App
from textual.pilot import Pilot

_TEXT = re.compile(r'<text class="[^"]+" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')
# The width of a character in such a picture.
CELL = 12.2


def shown(app: App[Any]) -> str:
    """Return the lines that the terminal shows."""
    lines: defaultdict[float, str] = defaultdict(str)
    for x, y, text in _TEXT.findall(app.export_screenshot()):
        column = round(float(x) / CELL)
        lines[float(y)] = lines[float(y)].ljust(column) + unescape(text).replace("\xa0", " ")
    return "\n".join(lines[y].rstrip() for y in sorted(lines))


def line_with(app: App[Any], text: str) -> str:
    """Return the first line that has this text; empty: there is none."""
    return next((one for one in shown(app).split("\n") if text in one), "")


async def sees(pilot: Pilot[Any], *texts: str) -> str:
    """Wait until the terminal shows all of these texts, and return all that it shows."""

    async def there() -> bool:
        await pilot.pause()
        found = shown(pilot.app)
        return all(one in found for one in texts)

    try:
        await until(there)
    except TimeoutError:
        raise AssertionError(f"{texts} are not all in\n{shown(pilot.app)}") from None
    return shown(pilot.app)
