"""Archives that tests unpack."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, directory: Path) -> None:
    """Put an archive's files into a directory, and nothing outside of it."""
    # Python 3.11.2, which Debian 12 has, does not have filters yet.
    if hasattr(tarfile, "data_filter"):
        archive.extraction_filter = tarfile.data_filter
    archive.extractall(directory)
