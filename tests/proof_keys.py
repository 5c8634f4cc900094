"""Key files of proofs, for tests."""

from __future__ import annotations

import base64
from pathlib import Path


def key_line(name: str, secret: bytes | None = None) -> str:
    """A line of a key file; the same name is the same key."""
    secret = secret or name.encode().ljust(32, b"-")
    return f"{name} {base64.b64encode(secret).decode()}\n"


def write_keys(path: Path, *names: str) -> str:
    """Put a key file in its place at once, as who rotates keys should, and return its name."""
    part = path.with_name(path.name + ".part")
    part.write_text("# Keys of proofs.\n\n" + "".join(map(key_line, names)))
    part.chmod(0o600)
    part.replace(path)
    return str(path)
