"""Build a release of the current commit: wheel, sdist, bill of materials and checksums.

The files are built from what git has of the commit, and from nothing else. They are built twice, in
different folders, and the wheel once from the sdist and once from the tree. Both builds must have
the same bytes, so that a second person can repeat the build and compare.

A commit with the tag of its version (`0.1.0`) is built as that version. Any other commit is built
as a development version such as `0.1.0.dev906+g5ab2804b`, which package indexes refuse.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import sbom

from magnetar_core.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
# What a package index links to.
URLS = ("Source", "Documentation", "Changelog", "Issues")
VERSION_FILE = "core/magnetar_core/version.py"


class NotReleasable(Exception):
    """Why no release can be made of this commit, and what to do."""


def git(*arguments: str, root: Path = ROOT) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotReleasable(f"git {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def require_complete(root: Path) -> None:
    """Refuse a release whose page in a package index would lead nowhere.

    Raises:
        NotReleasable: naming all that is missing.
    """
    missing = []
    heading = rf"^## {re.escape(VERSION)}, \d{{4}}-\d\d-\d\d$"
    if not re.search(heading, (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        missing.append(f"CHANGELOG.md: a heading with the day, `## {VERSION}, YYYY-MM-DD`")
    urls = tomllib.loads((root / "pyproject.toml").read_text())["project"].get("urls", {})
    missing += [f"pyproject.toml: [project.urls] {name}" for name in URLS if name not in urls]
    if missing:
        raise NotReleasable("\n".join(["These are missing (docs/releasing.md):", *missing]))


def version_of_commit(root: Path = ROOT) -> str:
    """The version that the current commit is built as.

    Raises:
        NotReleasable: files differ from the commit, the tag is that of another version, or
            something that a release needs is missing.
    """
    changed = git("status", "--porcelain", root=root)
    if changed:
        raise NotReleasable(
            "These files differ from the commit, so the build could not be repeated. "
            f"Commit or remove them first:\n{changed}"
        )
    tags = [tag for tag in git("tag", "--points-at", "HEAD", root=root).split() if tag[0].isdigit()]
    if not tags:
        count = git("rev-list", "--count", "HEAD", root=root)
        return f"{VERSION}.dev{count}+g{git('rev-parse', '--short=8', 'HEAD', root=root)}"
    if tags != [VERSION]:
        raise NotReleasable(
            f"The commit has the tag {', '.join(tags)}, and {VERSION_FILE} says {VERSION}."
        )
    require_complete(root)
    return VERSION


def export(folder: Path, version: str) -> Path:
    """Write the files of the current commit, with this version, to a new folder.

    Returns:
        The folder.
    """
    folder.mkdir()
    files = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=files.stdout, check=True)
    file = folder / VERSION_FILE
    file.write_text(file.read_text().replace(f'"{VERSION}"', f'"{version}"'))
    return folder


def build(source: Path, to: Path, *formats: str, epoch_s: int) -> None:
    """Build wheel and sdist of a folder with sources.

    Args:
        formats: `--sdist` and `--wheel`, made from the folder itself. None: first the sdist, and
            then the wheel from it.
        epoch_s: the time of all files in them, in seconds since 1970.
    """
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(to), *formats]
    done = subprocess.run(
        [*command, str(source)],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotReleasable(f"The build failed:\n{done.stdout}")


def checksums(folder: Path) -> str:
    """The lines of SHA256SUMS for all files of a folder, as `sha256sum --check` reads them."""
    return "".join(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        for file in sorted(folder.iterdir())
        if file.name != "SHA256SUMS"
    )


def release(to: Path) -> str:
    """Write all files of a release to an emptied folder. Returns the version."""
    version = version_of_commit()
    epoch_s = int(git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as name:
        first, second = Path(name) / "first", Path(name) / "second"
        build(export(Path(name) / "a", version), first, epoch_s=epoch_s)
        build(export(Path(name) / "b", version), second, "--sdist", "--wheel", epoch_s=epoch_s)
        if checksums(first) != checksums(second):
            raise NotReleasable(
                f"Two builds of the same commit differ:\n{checksums(first)}{checksums(second)}"
            )
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(first, to)
    bill = json.dumps(sbom.bill(version), indent=2) + "\n"
    (to / f"magnetar-{version}.cdx.json").write_text(bill)
    (to / "SHA256SUMS").write_text(checksums(to))
    return version


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="is emptied first")
    folder = parser.parse_args().folder
    try:
        version = release(folder)
    except NotReleasable as error:
        print(error, file=sys.stderr)
        return 1
    print((folder / "SHA256SUMS").read_text(), end="")
    if version != VERSION:
        print(
            f"The commit has no tag {VERSION}, so this is the development version {version}. "
            "docs/releasing.md says how to make a release."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
