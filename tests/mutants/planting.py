"""Put a mutant into the running process, and take it out again."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from tests.mutants.catalogue import BY_NAME
from tests.mutants.mutant import Mutant


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Let a function of the product make the mistake of a named mutant for a while.

    Its code is replaced and not the function, so that whoever has taken hold of it sees the
    mistake, too.

    Raises:
        MutantFailed: as `Mutant.mutated`.
    """
    mutant = BY_NAME[name]
    function, qualified_name = function_of(mutant)
    before = function.__code__
    function.__code__ = _code(compile(mutant.mutated.text, mutant.file, "exec"), qualified_name)
    try:
        yield
    finally:
        function.__code__ = before


def function_of(mutant: Mutant) -> tuple[FunctionType, str]:
    """The function that a process can reach, and its name.

    Raises:
        TypeError: the mutant changes something else.
    """
    found: Any = importlib.import_module(mutant.module)
    names: list[str] = []
    for name in mutant.qualified_name.split("."):
        if isinstance(found, FunctionType):
            # What is defined within it belongs to its code.
            break
        found = inspect.getattr_static(found, name)
        names.append(name)
        if isinstance(found, property):
            found = found.fget
        if isinstance(found, classmethod | staticmethod):
            found = found.__func__
        if callable(found):
            found = inspect.unwrap(found)
    if not isinstance(found, FunctionType):
        raise TypeError(f"mutant {mutant.name} does not change a function")
    return found, ".".join(names)


def _code(code: CodeType, qualified_name: str) -> CodeType:
    for name in qualified_name.split("."):
        code = next(
            one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name
        )
    return code
