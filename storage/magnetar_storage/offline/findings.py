"""Findings of a check of a store: damage, and notes about unusual but harmless things. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

# Of each kind of finding in a store; the others are only counted, since a lost file may cause
# millions.
KEPT_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding.

    Attributes:
        check: the name of the check that found it, as docs/check.md lists them.
        where: the rows, partition or transaction that it is about.
        text: what was found, and what should be there.
        is_damage: False: it is harmless.
    """

    check: str
    where: str
    text: str
    is_damage: bool = True


class Findings:
    """Findings about a store, bounded in number."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.counts: Counter[tuple[str, bool]] = Counter()

    @property
    def damage_count(self) -> int:
        """Number of findings that are damage, those that were not kept included."""
        return sum(count for (_, is_damage), count in self.counts.items() if is_damage)

    def damage(self, check: str, where: str, text: str) -> None:
        """Add damage."""
        self._add(Finding(check, where, text))

    def note(self, check: str, where: str, text: str) -> None:
        """Add something unusual that is harmless."""
        self._add(Finding(check, where, text, is_damage=False))

    def _add(self, finding: Finding) -> None:
        kind = finding.check, finding.is_damage
        self.counts[kind] += 1
        if self.counts[kind] <= KEPT_MAX:
            self.kept.append(finding)
