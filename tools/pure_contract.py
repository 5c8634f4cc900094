"""The contract of import-linter for pure code, in pyproject.toml.

What says "Pure." in its docstring may not import what the contract forbids, directly or through
other modules. A room says it in `__init__.py`, for all of its modules.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from grimp import ImportGraph
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.domain import fields
from importlinter.domain.contract import ContractCheck
from importlinter.domain.imports import ModuleExpression

_SAYS = re.compile(r"\bPure\.")


class PureContract(ForbiddenContract):
    """A contract "forbidden" whose source modules are those that say "Pure."."""

    type_name = "pure"

    source_modules = fields.SetField(subfield=fields.ModuleExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Find the pure modules, and check them as a contract "forbidden" does."""
        packages = self.session_options["root_packages"]
        names = {ModuleExpression(name) for name in pure_modules(packages)}
        self.source_modules = names  # type: ignore[assignment]
        return super().check(graph, verbose)


def pure_modules(packages: Iterable[str]) -> list[str]:
    """Names of the modules and rooms of these packages that say "Pure."; sorted."""
    found = []
    for package in packages:
        spec = find_spec(package)
        if spec is None or spec.submodule_search_locations is None:
            raise ValueError(f"{package} is not a package that can be imported")
        folder = Path(spec.submodule_search_locations[0])
        for path in folder.rglob("*.py"):
            if _SAYS.search(ast.get_docstring(ast.parse(path.read_text())) or ""):
                parts = path.relative_to(folder.parent).with_suffix("").parts
                found.append(".".join(parts).removesuffix(".__init__"))
    return sorted(found)
