"""`make release`: what is in wheel and sdist, and which version a commit is."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import release
from packaging.metadata import Metadata
from packaging.utils import canonicalize_name
from packaging.version import Version
from tests.deploy.wheels import EPOCH_S, ROOT, copy_sources
from tests.docs.test_links import tracked

from magnetar_core.version import VERSION

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
# A package that runs from its folder, where the wheel does not have it.
EXAMPLE = "examples/flights/magnetar_flights"
INFO = f"magnetar-{VERSION}.dist-info"


@pytest.fixture(scope="module")
def wheel_files(built: Path) -> dict[str, bytes]:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_all_files_of_the_packages_and_no_others(
    wheel_files: dict[str, bytes],
) -> None:
    sources = {
        str(Path(name).relative_to(Path(package).parent)): ROOT / name
        for package in PACKAGES
        for name in tracked(package)
    }
    beside = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    assert wheel_files.keys() == sources.keys() | {f"{INFO}/{name}" for name in beside}
    assert all(wheel_files[name] == path.read_bytes() for name, path in sources.items())
    # A new package would be left out silently.
    markers = {str(Path(name).parent) for name in tracked("*/py.typed")}
    assert {*PACKAGES, EXAMPLE} == markers
    paths = {str(Path(package).parent) for package in (*PACKAGES, EXAMPLE)}
    assert set(PROJECT["tool"]["hatch"]["build"]["dev-mode-dirs"]) == paths


def test_the_sdist_has_all_files_that_git_knows(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    names = {member.name.removeprefix(f"magnetar-{VERSION}/") for member in members}
    assert names == {*tracked(), "PKG-INFO"}
    assert {(member.uid, member.gid, member.mtime) for member in members} == {(0, 0, EPOCH_S)}
    assert {member.mode for member in members} == {0o644, 0o755}


def test_another_build_has_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """The other wheel does not come from the sdist, and its sources have other times and modes."""
    source = copy_sources(tmp_path / "copied")
    for path in source.rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
        path.chmod(0o700 if path.stat().st_mode & 0o100 else 0o600)
    release.build(source, tmp_path / "other", "--sdist", "--wheel", epoch_s=EPOCH_S)
    assert release.checksums(built) == release.checksums(tmp_path / "other")
    assert len(release.checksums(built).splitlines()) == 2


def test_the_metadata_tell_what_a_package_index_shows(wheel_files: dict[str, bytes]) -> None:
    metadata = Metadata.from_email(wheel_files[f"{INFO}/METADATA"], validate=True)
    assert (metadata.name, metadata.version) == ("magnetar", Version(VERSION))
    assert metadata.summary == PROJECT["project"]["description"]
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description == (ROOT / "README.md").read_text()
    assert (metadata.license_expression, metadata.license_files) == ("Apache-2.0", ["LICENSE"])
    assert metadata.classifiers == PROJECT["project"]["classifiers"]
    assert metadata.provides_extra is not None
    extras = {canonicalize_name(extra) for extra in PROJECT["project"]["optional-dependencies"]}
    assert set(metadata.provides_extra) == extras
    # An index refuses files that need a package by its address.
    assert metadata.requires_dist is not None
    assert not [str(one) for one in metadata.requires_dist if one.url]


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "b.whl").write_bytes(b"wheel")
    (tmp_path / "a.tar.gz").write_bytes(b"sdist")
    (tmp_path / "SHA256SUMS").write_text(release.checksums(tmp_path))
    assert release.checksums(tmp_path) == "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        for name, content in (("a.tar.gz", b"sdist"), ("b.whl", b"wheel"))
    )
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)


CHANGELOG = f"# Changes\n\n## {VERSION}, 2027-01-04\n"
URLS = "".join(f'{name} = "https://example.org"\n' for name in release.URLS)
COMPLETE = f'[project]\nname = "magnetar"\n[project.urls]\n{URLS}'


def repository(root: Path, changelog: str = CHANGELOG, project: str = COMPLETE) -> Path:
    """A repository with one commit."""
    (root / "CHANGELOG.md").write_text(changelog)
    (root / "pyproject.toml").write_text(project)
    release.git("init", "--quiet", root=root)
    release.git("add", ".", root=root)
    person = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    release.git(*person, "commit", "--quiet", "--message", "one", root=root)
    return root


def test_a_commit_with_the_tag_of_its_version_is_that_version(tmp_path: Path) -> None:
    root = repository(tmp_path)
    release.git("tag", VERSION, root=root)
    release.git("tag", "a-name", root=root)
    assert release.version_of_commit(root) == VERSION


def test_a_commit_without_a_tag_is_a_development_version(tmp_path: Path) -> None:
    # Nothing has to be complete yet.
    root = repository(tmp_path, changelog="# Changes\n", project="[project]\n")
    found = release.version_of_commit(root)
    commit = release.git("rev-parse", "HEAD", root=root)
    assert found == f"{VERSION}.dev1+g{commit[:8]}"
    # Installers prefer the release to it, and indexes refuse a version with a local part.
    assert Version(found) < Version(VERSION)
    assert Version(found).local is not None


def test_files_that_are_not_committed_are_refused(tmp_path: Path) -> None:
    root = repository(tmp_path)
    (root / "new.py").write_text("")
    with pytest.raises(release.NotReleasable, match=r"new\.py"):
        release.version_of_commit(root)
    (root / "new.py").unlink()
    (root / "CHANGELOG.md").write_text("")
    with pytest.raises(release.NotReleasable, match=r"CHANGELOG\.md"):
        release.version_of_commit(root)


def test_the_tag_of_another_version_is_refused(tmp_path: Path) -> None:
    root = repository(tmp_path)
    release.git("tag", "9.9.9", root=root)
    with pytest.raises(release.NotReleasable, match=r"9\.9\.9"):
        release.version_of_commit(root)


def test_an_incomplete_release_is_refused_with_all_that_is_missing(tmp_path: Path) -> None:
    unreleased = f"# Changes\n\n## {VERSION}, not released yet\n"
    root = repository(tmp_path, changelog=unreleased, project="[project]\n")
    release.git("tag", VERSION, root=root)
    with pytest.raises(release.NotReleasable) as refusal:
        release.version_of_commit(root)
    wanted = ["CHANGELOG.md", *(f"[project.urls] {name}" for name in release.URLS)]
    assert [one for one in wanted if one not in str(refusal.value)] == []


def test_an_export_has_the_committed_files_and_the_given_version(tmp_path: Path) -> None:
    folder = release.export(tmp_path / "exported", "1.2.3.dev4+g0")
    committed = release.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == set(committed)
    assert 'VERSION = "1.2.3.dev4+g0"\n' in (folder / release.VERSION_FILE).read_text()
