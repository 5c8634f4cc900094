"""The environment of processes that tests start."""

from __future__ import annotations

import os
from pathlib import Path


def without_settings() -> dict[str, str]:
    """Return the present environment, without settings and contexts of Magnetar."""
    found = {name: text for name, text in os.environ.items() if not name.startswith("MAGNETAR_")}
    return found | {"MAGNETAR_CONTEXTS_FILE": "/nonexistent/contexts.json"}


def own_environment(temporary: Path) -> dict[str, str]:
    """Return one whose temporary files lie where the test finds them."""
    return without_settings() | {
        "TMPDIR": str(temporary),
        "MAGNETAR_CONTEXTS_FILE": str(temporary / "contexts.json"),
    }
