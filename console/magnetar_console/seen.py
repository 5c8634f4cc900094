"""Rows that a look at the cluster has returned, in the form of JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

# A row has texts, numbers, and lists and mappings of them.
Row: TypeAlias = Mapping[str, Any]
# Rows by key.
Table: TypeAlias = Mapping[str, Row]
# Tables by name.
Tables: TypeAlias = Mapping[str, Table]


@dataclass(frozen=True, slots=True)
class Seen:
    """Answers of one look.

    Attributes:
        tables: the rows that a view shows.
        problems: the parts that are missing, each as a sentence; empty: nothing is missing.
    """

    tables: Tables
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """The content of a view at some moment.

    Attributes:
        tables: the rows of the last look that was answered.
        as_of_ms: when that was, in milliseconds since the Unix epoch; 0: never.
        problems: the parts that were missing then.
        error: why the cluster does not answer now; empty: it does.
    """

    tables: Tables
    as_of_ms: int = 0
    problems: tuple[str, ...] = ()
    error: str = ""
