"""Files of properties, with which both peers are configured."""

from __future__ import annotations

from collections.abc import Mapping


def rendered(settings: Mapping[str, str]) -> str:
    """The text of a file of properties; values have no characters that it would have to escape."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())
