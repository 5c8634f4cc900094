"""A copy of one package with a mistake in it, in a directory that goes first on the path.

The sources stay as they are, so that others may use them meanwhile.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.mutant import ROOT, Mutant


@contextmanager
def overlay(mutant: Mutant) -> Iterator[Path]:
    """Raises: MutantFailed, as Mutant.mutated."""
    text = mutant.mutated.text
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        source = ROOT / mutant.component / mutant.package
        # Times are kept, so that what was compiled before serves.
        shutil.copytree(source, Path(folder) / mutant.package)
        place = Path(folder) / Path(mutant.file).relative_to(mutant.component)
        # A link or a compiled form of the file would speak for the old text.
        for compiled in place.parent.glob(f"__pycache__/{place.stem}.*"):
            compiled.unlink()
        place.write_text(text)
        yield Path(folder)


def environment(folder: Path | None) -> dict[str, str]:
    """Of a process that is to see the copy; None: the code as it is."""
    result = {**os.environ, "PYTHONHASHSEED": "0"}
    # Of those that name seeds or a trace, none is meant for these runs.
    for name in ("SIM_SEEDS", "SIM_TRACE"):
        result.pop(name, None)
    path = [str(folder)] if folder is not None else []
    if os.environ.get("PYTHONPATH"):
        path.append(os.environ["PYTHONPATH"])
    result["PYTHONPATH"] = os.pathsep.join(path)
    if folder is not None:
        # What failed with a mistake in the code is no example for the code without.
        result["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / ".hypothesis")
    return result
