"""Run histories of the code as it is, and note which lines of the sources each of them executes.

Run as a process of its own: `python -m tests.mutants.recording JOB JOBS COUNT`. Prints a line of
JSON for each history, and one at the end with the lines: by file and line a number in hexadecimal
digits, whose bit N says that history N was there. What was executed before any history, by
imports, has a list of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import coverage
from tests.mutants.mutant import ROOT

PACKAGES = [
    "magnetar",
    "magnetar_broker",
    "magnetar_cluster",
    "magnetar_coordinator",
    "magnetar_core",
    "magnetar_storage",
]
# A tracer looks on: everything takes that much longer.
SLOWER = 4.0


def main() -> int:
    job, jobs, count = map(int, sys.argv[1:])
    # No file and no settings of others; imports are to be seen, so they come later.
    recorder = coverage.Coverage(
        data_file=None, config_file=False, source_pkgs=PACKAGES, check_preimported=False
    )
    recorder.start()
    from tests.mutants.histories import HISTORY_SECONDS_MAX, bound_memory, history, share, timed

    bound_memory()
    for number in share(job, jobs, count):
        recorder.switch_context(str(number))
        result = timed(history(number), SLOWER * HISTORY_SECONDS_MAX)
        print(json.dumps([number, *result]), flush=True)
    recorder.stop()
    print(json.dumps(_lines(recorder.get_data())), flush=True)
    return 0


def _lines(data: coverage.CoverageData) -> dict[str, dict[str, dict[int, str]]]:
    lines: dict[str, dict[int, str]] = {}
    imported: dict[str, dict[int, str]] = {}
    for path in data.measured_files():
        file = str(Path(path).relative_to(ROOT))
        for line, contexts in data.contexts_by_lineno(path).items():
            mask = sum(1 << int(one) for one in contexts if one)
            if mask:
                lines.setdefault(file, {})[line] = f"{mask:x}"
            if "" in contexts:
                imported.setdefault(file, {})[line] = "1"
    return {"lines": lines, "imported": imported}


if __name__ == "__main__":
    sys.exit(main())
