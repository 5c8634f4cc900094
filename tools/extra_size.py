"""Say which packages an extra adds to others, and their megabytes, as they are installed here.

python tools/extra_size.py console --beside server
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "magnetar"


def needed(extras: Iterable[str]) -> dict[str, Distribution]:
    """Return the installed packages that the project needs with some extras, itself left out.

    Raises:
        SystemExit: one of them is not installed.
    """
    found: dict[str, Distribution] = {}
    wanted = [(PROJECT, frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        name, with_extras = wanted.pop()
        if (name, with_extras) in seen:
            continue
        seen.add((name, with_extras))
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            raise SystemExit(f"{name} is not installed: run `make install`") from None
        for text in found[name].requires or ():
            one = Requirement(text)
            if _applies(one, with_extras):
                wanted.append((canonicalize_name(one.name), frozenset(one.extras)))
    del found[PROJECT]
    return found


def _applies(one: Requirement, extras: frozenset[str]) -> bool:
    return one.marker is None or any(
        one.marker.evaluate({"extra": name}) for name in extras or {""}
    )


def size_bytes(package: Distribution) -> int:
    """Return the bytes of a package's files, those left out that Python makes when it runs."""
    files = [one for one in package.files or () if "__pycache__" not in one.parts]
    paths = [Path(str(one.locate())) for one in files]
    return sum(path.stat().st_size for path in paths if path.is_file())


def main() -> None:
    """Print a line for each package, the largest first, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extra")
    parser.add_argument("--beside", action="append", default=[], help="An extra that is there.")
    given = parser.parse_args()
    before = needed(given.beside)
    added = {
        name: size_bytes(one)
        for name, one in needed([given.extra, *given.beside]).items()
        if name not in before
    }
    for name, size in sorted(added.items(), key=lambda one: -one[1]):
        print(f"{size / 1e6:6.1f} MB  {name} {distribution(name).version}")
    print(f"{sum(added.values()) / 1e6:6.1f} MB  {len(added)} packages")


if __name__ == "__main__":
    main()
