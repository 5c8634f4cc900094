"""One word, one thing: names say which of several things a word stands for (docs/glossary.md).

A name that one function or one class uses alone may be shorter: these tests look at modules,
classes, functions, and the public names of classes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from .test_links import ROOT, tracked

PRODUCT = (
    "broker",
    "cli",
    "client",
    "cluster",
    "console",
    "coordinator",
    "core",
    "kafka",
    "pipeline",
    "storage",
)
WORDS_MIN, WORDS_MAX = 35, 55
# A class is not called by one of these alone: each of them stands for several things.
TOO_SHORT = ("Event", "Memory", "Owner", "Ownership", "Phase", "Refusals", "Requests")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for a word in names of a package.

    Attributes:
        word: in the singular; its plural counts as well.
        forms: what a name with the word contains; empty: no name has it.
        settled: names that are stored, shown or set, and keep their words.
    """

    word: str
    package: str
    forms: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()


RULES = (
    Rule(
        "directory",
        "broker",
        ("topic_directory",),
        settled=(
            "META_DIRECTORY_COPY",
            "META_DIRECTORY_LIVES",
            "directory_current",
            "directory_losses",
        ),
    ),
    Rule("directory", "client"),
    Rule(
        "directory",
        "cluster",
        ("cluster_directory", "etcd_directory", "memory_directory"),
        settled=("directory_pause_ms_min", "directory_pause_ms_max"),
    ),
    Rule("directory", "coordinator"),
    Rule("directory", "core", ("topic_directory",)),
    Rule("memory", "broker", ("memory_budget", "memory_bytes")),
    Rule("memory", "cluster", ("memory_directory", "memory_service")),
    Rule("owner", "broker", ("partition_owner",)),
    Rule(
        "owner",
        "client",
        ("item_owner", "membership_owner", "owner_watch", "partition_owner", "work_owner"),
    ),
    Rule("owner", "coordinator", ("peer_owner", "txn_owner")),
    Rule("ownership", "broker", ("group_ownership",)),
    Rule("ownership", "client", ("partition_ownership",)),
    Rule("ownership", "cluster", ("shard_ownership",)),
    Rule("ownership", "coordinator"),
    Rule("rest", "broker"),
    Rule("rest", "coordinator"),
    Rule("session", "cli", ("job_session", "session_timeout")),
    Rule("session", "pipeline", ("spark_session",)),
    # As Spark names it in the progress of a query.
    Rule("watermark", "pipeline", ("batch_watermark",), settled=("watermark",)),
)
# No module has one of these names: others in the tree would mean another thing by it.
NO_MODULES = ("answers", "directory_state", "memory", "ownership", "refusals")


def sources(package: str) -> list[str]:
    return [
        one
        for one in tracked(f"{package}/*.py")
        if not one.endswith("_pb2.py") and "/blocking/" not in one
    ]


def module_names() -> Iterator[tuple[str, str]]:
    for package in PRODUCT:
        for file in sources(package):
            yield file, file.rpartition("/")[2].removesuffix(".py")


def lasting_names(file: str) -> Iterator[str]:
    """Names of a module that code elsewhere may use."""
    yield file.rpartition("/")[2].removesuffix(".py")
    for node in ast.parse((ROOT / file).read_text()).body:
        yield from _defined(node)
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                yield from _defined(statement)
            for part in ast.walk(node):
                if (
                    isinstance(part, ast.Attribute)
                    and isinstance(part.ctx, ast.Store)
                    and ast.unparse(part.value) == "self"
                ):
                    yield part.attr


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id


def in_words(name: str) -> str:
    """A name in lower case with underscores: `TopicDirectory` is `topic_directory`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def has(name: str, form: str) -> bool:
    plural = form.removesuffix("y") + "ies" if form.endswith("y") else form + "s"
    return re.search(rf"(?:^|_)(?:{form}|{plural})(?:_|$)", in_words(name)) is not None


def misused(rule: Rule, name: str) -> bool:
    if name.startswith("_") or name in rule.settled or not has(name, rule.word):
        return False
    return not any(has(name, form) or in_words(name).startswith(form) for form in rule.forms)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.word}-{rule.package}")
def test_names_use_a_word_for_its_one_meaning(rule: Rule) -> None:
    wrong = {
        f"{file}: {name}"
        for file in sources(rule.package)
        for name in lasting_names(file)
        if misused(rule, name)
    }
    assert not wrong


def test_no_class_is_called_by_a_word_of_several_meanings() -> None:
    wrong = {
        f"{file}: {node.name}"
        for package in PRODUCT
        for file in sources(package)
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.ClassDef) and node.name in TOO_SHORT
    }
    assert not wrong


def test_no_module_is_called_by_a_word_of_several_meanings() -> None:
    assert not {file for file, name in module_names() if name in NO_MODULES}


def glossary() -> list[list[str]]:
    rows = re.findall(
        r"^\| (?!word|-)(.+?) \|(.*)\|(.*)\|$", (ROOT / "docs/glossary.md").read_text(), re.M
    )
    return [[cell.strip() for cell in row] for row in rows]


def test_the_glossary_explains_each_word_once_in_order() -> None:
    words = [row[0] for row in glossary()]
    assert words == sorted(set(words), key=str.lower)
    assert WORDS_MIN <= len(words) <= WORDS_MAX


@pytest.mark.parametrize("word", sorted({rule.word for rule in RULES} - {"ownership", "rest"}))
def test_the_glossary_explains_words_that_names_may_use(word: str) -> None:
    assert any(word in row[0].split() for row in glossary())


def test_names_in_the_glossary_are_those_of_the_code() -> None:
    text = "\n".join((ROOT / file).read_text() for one in PRODUCT for file in sources(one))
    known = set(re.findall(r"\w+", text))
    named = {name for row in glossary() for name in re.findall(r"`(\w+)`", row[2])}
    assert named <= known
