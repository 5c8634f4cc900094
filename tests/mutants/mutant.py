"""A mutant is data: an operation on one function, and the mistake that it stands for."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tests.mutants.operations import FUNCTIONS, Operation, PlaceMissing

ROOT = Path(__file__).parents[2]
# The folder of each package's sources, and that of its tests.
COMPONENT_OF = {
    "magnetar_core": "core",
    "magnetar_storage": "storage",
    "magnetar_cluster": "cluster",
    "magnetar_broker": "broker",
    "magnetar_kafka": "kafka",
    "magnetar_coordinator": "coordinator",
    "magnetar": "client",
    "magnetar_spark": "pipeline",
    "magnetar_console": "console",
    "magnetar_cli": "cli",
}
TESTS_OF = {component: component for component in COMPONENT_OF.values()} | {
    "kafka": "kafka_clients",
    "pipeline": "spark",
}
# What the simulation never runs: memory of a process, stores on real disks and in object stores,
# etcd, real links, Kafka's clients, Spark, the command line, the console.
NOT_SIMULATED = (
    "cli/",
    "console/",
    "kafka/",
    "pipeline/",
    "broker/magnetar_broker/budgets/memory_budget.py",
    "storage/magnetar_storage/rocksdb/",
    "storage/magnetar_storage/slatedb/",
    "storage/magnetar_storage/object_store/",
    "storage/magnetar_storage/mark_updates.py",
    "core/magnetar_core/link/grpc_",
    "core/magnetar_core/server/grpc_",
    "core/magnetar_core/process/process_memory.py",
    "core/magnetar_core/security/",
    "cluster/magnetar_cluster/etcd",
)


class MutantFailed(Exception):
    """The code has changed under a mutant, which cannot be made any more."""


class Mutated(NamedTuple):
    """What an operation makes of a module.

    Attributes:
        text: of the whole module, without comments.
        nodes: what the operation concerns, with the lines of the source.
        definition: the function, or what defines a name.
    """

    text: str
    nodes: list[ast.AST]
    definition: ast.stmt


@dataclass(frozen=True)
class Mutant:
    """A mistake that somebody could make in good faith.

    Attributes:
        function: its module and its name there: `magnetar_broker.topics.partition:Partition.end`.
            Or a name of a module or class that is defined by an assignment.
        mistake: one sentence on what somebody had in mind, or overlooked.
        unseen_because: why neither a client, nor another server, nor who reads the log can tell
            the mistake from the right code; empty for nearly all.
        tests: the files that find it, for those that the simulation does not find.
    """

    name: str
    function: str
    operation: Operation
    mistake: str
    unseen_because: str = ""
    tests: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        return self.function.partition(":")[0]

    @property
    def qualified_name(self) -> str:
        return self.function.partition(":")[2]

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]

    @property
    def component(self) -> str:
        return COMPONENT_OF[self.package]

    @property
    def source(self) -> Path:
        """The file as it is."""
        place = ROOT / self.component / self.module.replace(".", "/")
        return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")

    @property
    def file(self) -> str:
        """The same, from the root of the project."""
        return str(self.source.relative_to(ROOT))

    @property
    def is_simulated(self) -> bool:
        return not self.file.startswith(NOT_SIMULATED)

    @property
    def tests_folder(self) -> Path:
        """The folder of its component's tests."""
        return ROOT / "tests" / TESTS_OF[self.component]

    @cached_property
    def mutated(self) -> Mutated:
        """The module with the mistake in it.

        Raises:
            MutantFailed: the function is missing, or not exactly one place of it fits.
        """
        if not self.source.exists():
            raise self._failed(f"there is no module {self.module}")
        tree = ast.parse(self.source.read_text())
        definition = find(tree, self.qualified_name)
        if definition is None:
            raise self._failed(f"function {self.qualified_name} of {self.module} is missing")
        before = ast.unparse(definition)
        try:
            nodes = self.operation.apply(definition)
        except PlaceMissing as error:
            where = f"function {self.qualified_name} of {self.module}"
            raise self._failed(f"in {where}, {error}") from None
        ast.fix_missing_locations(tree)
        if ast.unparse(definition) == before:
            raise self._failed("nothing is changed")
        text = ast.unparse(tree)
        compile(text, self.file, "exec")
        return Mutated(text, nodes, definition)

    def _failed(self, why: str) -> MutantFailed:
        return MutantFailed(
            f"tests/mutants: mutant {self.name}: {why}. If the code has changed, make the same"
            " mistake in the new code, or remove the mutant if nobody can make the mistake any more"
        )


def find(tree: ast.Module, qualified_name: str) -> ast.stmt | None:
    """The definition of a name, by the names around it."""
    body, found = tree.body, None
    for name in qualified_name.split("."):
        found = next((one for one in _definitions(body) if name_of(one) == name), None)
        if found is None:
            return None
        body = getattr(found, "body", [])
    return found


def _definitions(body: list[ast.stmt]) -> list[ast.stmt]:
    """Those of a body, also under conditions, without overloads."""
    result: list[ast.stmt] = []
    for statement in body:
        if name_of(statement) is not None:
            decorators = getattr(statement, "decorator_list", [])
            if not any(isinstance(one, ast.Name) and one.id == "overload" for one in decorators):
                result.append(statement)
        elif not isinstance(statement, ast.Expr):
            for field in ("body", "orelse"):
                result += _definitions(getattr(statement, field, []))
    return result


def name_of(statement: ast.stmt) -> str | None:
    """The name that a statement defines."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return statement.name
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    if len(targets) == 1 and isinstance(targets[0], ast.Name):
        return targets[0].id
    return None
