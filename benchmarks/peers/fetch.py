"""Gets the peers: their servers and Java clients by Maven, their Python clients by pip.

Everything is in one directory, which git ignores and `make distclean` removes. Maven refuses files
whose checksums differ from those of their repository (`--strict-checksums`); the main archives are
also held against the checksums below.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent
PEERS = ROOT / ".peers"
VENV_PYTHON = PEERS / "venv/bin/python"

COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
PYTHON_CLIENTS = ("confluent-kafka==2.16.1", "pulsar-client==3.13.0")
SHA256: Mapping[str, Mapping[str, str]] = {
    "kafka": {
        "kafka_2.13-4.3.1.jar": (
            "b098abef5ff878e76f60cd6c559b9baa5663ccb1b55f2837558b22c329d32423"
        ),
        "kafka-clients-4.3.1.jar": (
            "52501b7b47510c66f898871adaf6d2968ab7246561d44ced43643a8a587f0b36"
        ),
        "kafka-server-4.3.1.jar": (
            "01d736599ec3b0cdbb0480c15219170b28cdae189785e7f0c6f1f26e528eaebc"
        ),
        "kafka-tools-4.3.1.jar": (
            "62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c"
        ),
    },
    "pulsar": {
        "pulsar-broker-4.2.4.jar": (
            "77ce17d0546641ade3f75a2498115c640645f0d138392007ad9c2e97a62a8c0b"
        ),
        "pulsar-client-original-4.2.4.jar": (
            "e95871869690d7fad7fd774e7a7f36099f9fe2e3ea459588327a7869bed788ee"
        ),
        "bookkeeper-server-4.17.3.jar": (
            "50001824895cf35c5e47148890a0c3fc00132db5fe1ce0f17ae43da3654f91f7"
        ),
    },
    "spark_kafka": {
        "spark-sql-kafka-0-10_2.13-4.2.0.jar": (
            "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
        ),
        "spark-token-provider-kafka-0-10_2.13-4.2.0.jar": (
            "641c7947afc8aa1189e433b7c2d305293993c8691bc1c2062d6d4f513b12518c"
        ),
        "kafka-clients-3.9.2.jar": (
            "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"
        ),
    },
}


class NotFetched(Exception):
    """A peer could not be fetched, or is not what it should be."""


def fetch(peers: Sequence[str]) -> None:
    """Make sure that these peers are there, with their clients.

    Raises:
        NotFetched: a program failed, or an archive has another checksum.
    """
    for peer in peers:
        fetch_archives(peer)
        _compile(peer)
    if peers:
        make_environment("venv", "the Python clients of the peers", PYTHON_CLIENTS)


def class_path(peer: str) -> str:
    """Return the class path of a peer's Java programs: our classes, and the peer's archives."""
    return os.pathsep.join((str(PEERS / "classes" / peer), str(PEERS / peer / "lib/*")))


def fetch_archives(name: str) -> Path:
    """Make sure that the archives of maven/NAME.xml are there, and return their directory.

    Raises:
        NotFetched: Maven failed, or an archive has another checksum.
    """
    description = SOURCES / "maven" / f"{name}.xml"
    directory = PEERS / name / "lib"
    fetched = PEERS / name / ".fetched"
    if not is_made_of(fetched, [description]):
        print(f"fetching {name}", file=sys.stderr)
        # Archives of another version would stay beside the new ones.
        shutil.rmtree(directory, ignore_errors=True)
        _run(
            "mvn", "--batch-mode", "--quiet", "--strict-checksums",
            "--file", str(description), f"-Dmaven.repo.local={PEERS / 'maven'}",
            COPY_DEPENDENCIES, "-DincludeScope=runtime", f"-DoutputDirectory={directory}",
        )  # fmt: skip
        fetched.write_text(digest([description]))
    for archive, expected in SHA256[name].items():
        found = sha256(directory / archive)
        if found != expected:
            raise NotFetched(f"{directory / archive} has SHA-256 {found}, and not {expected}")
    return directory


def _compile(peer: str) -> None:
    """Compile our client of a peer; javac refuses what does not fit the peer's version."""
    directory = SOURCES / "java"
    sources = [directory / "Shared.java", *sorted(directory.glob(f"{peer.capitalize()}*.java"))]
    classes = PEERS / "classes" / peer
    compiled = classes / ".compiled"
    if not is_made_of(compiled, sources):
        # Classes of another version would stay beside the new ones.
        shutil.rmtree(classes, ignore_errors=True)
        classes.mkdir(parents=True)
        _run("javac", "-d", str(classes), "-cp", class_path(peer), *map(str, sources))
        compiled.write_text(digest(sources))


def make_environment(name: str, what: str, packages: Sequence[str]) -> Path:
    """Make sure that a virtual environment has these packages, and return its Python.

    Args:
        name: of its directory among the peers.
        what: says what is fetched.
        packages: as pip takes them.
    Raises:
        NotFetched: pip failed.
    """
    directory = PEERS / name
    python, installed = directory / "bin/python", directory / ".installed"
    if not installed.exists() or installed.read_text() != "\n".join(packages):
        print(f"fetching {what}", file=sys.stderr)
        _run(sys.executable, "-m", "venv", str(directory))
        _run(str(python), "-m", "pip", "install", "--quiet", *packages)
        installed.write_text("\n".join(packages))
    return python


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal digits.

    Raises:
        NotFetched: there is no such file.
    """
    try:
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise NotFetched(f"{path} is missing: remove {PEERS} and fetch again") from error


def is_made_of(marker: Path, sources: Sequence[Path]) -> bool:
    """Whether something was made of these sources as they are, whatever their times say."""
    return marker.exists() and marker.read_text() == digest(sources)


def digest(sources: Sequence[Path]) -> str:
    content = b"".join(source.name.encode() + source.read_bytes() for source in sources)
    return hashlib.sha256(content).hexdigest()


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise NotFetched(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise NotFetched(f"{command[0]} failed with status {error.returncode}") from error
