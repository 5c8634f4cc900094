"""A mutant is data: a small change of a source file, and the mistake that it stands for."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The tests of each component, by the folder of its sources.
TESTS_OF = {
    "core": "core",
    "storage": "storage",
    "cluster": "cluster",
    "broker": "broker",
    "coordinator": "coordinator",
    "client": "client",
    "pipeline": "spark",
    "cli": "cli",
}
# What the simulation never runs: memory of a process, stores on real disks and in object stores,
# etcd, real links, Spark, the command line.
NOT_SIMULATED = (
    "cli/",
    "pipeline/",
    "broker/magnetar_broker/budgets/memory.py",
    "storage/magnetar_storage/rocksdb/",
    "storage/magnetar_storage/slatedb/",
    "storage/magnetar_storage/object_store/",
    "storage/magnetar_storage/mark_updates.py",
    "core/magnetar_core/link/grpc_",
    "core/magnetar_core/server/grpc_",
    "core/magnetar_core/process/process_memory.py",
    "core/magnetar_core/security/",
    "cluster/magnetar_cluster/etcd_",
)


class PatchFailed(Exception):
    """The code has changed under a mutant: its old text is to be brought up to date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A mistake that somebody could make in good faith.

    Attributes:
        file: of the sources, from the root of the project.
        old: exact text that occurs once in it.
        new: what stands in its place.
        mistake: one sentence on what somebody had in mind, or overlooked.
        unseen_because: why neither a client, nor another server, nor who reads the log can tell
            the mistake from the right code; empty for nearly all.
    """

    name: str
    file: str
    old: str
    new: str
    mistake: str
    unseen_because: str = ""

    @property
    def component(self) -> str:
        return self.file.split("/", 1)[0]

    @property
    def package(self) -> str:
        return self.file.split("/", 2)[1]

    @property
    def source(self) -> Path:
        """The file as it is."""
        return ROOT / self.file

    @property
    def is_simulated(self) -> bool:
        return not self.file.startswith(NOT_SIMULATED)

    @property
    def tests(self) -> Path:
        """The folder of its component's tests."""
        return ROOT / "tests" / TESTS_OF[self.component]

    def patched(self) -> str:
        """The whole source with the mistake in it.

        Raises:
            PatchFailed: the old text is not there exactly once, or the result means the same.
            SyntaxError: the result is no Python.
        """
        source = self.source.read_text()
        count = source.count(self.old)
        if count != 1:
            raise PatchFailed(
                f"mutant {self.name}: its old text occurs {count} times in {self.file}. The code"
                " has changed: say the same mistake about the new code, or remove the mutant when"
                " the mistake cannot be made any more"
            )
        result = source.replace(self.old, self.new)
        compile(result, self.file, "exec")
        if ast.dump(ast.parse(source)) == ast.dump(ast.parse(result)):
            raise PatchFailed(f"mutant {self.name}: its new text means the same as the old one")
        return result
