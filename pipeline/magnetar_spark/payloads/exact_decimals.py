"""Converts decimals to the scale of a column without rounding. Pure.

Arrow cannot do it: its decimals of 128 bits turn 1e-77, and 1 with 500 zeros behind the point, into
0.00, and 1e-999999999 ends the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from functools import cached_property

from magnetar_spark.payloads.payload import NotThis


@dataclass(frozen=True)
class ExactDecimal:
    """A column of decimals.

    Attributes:
        precision: the digits that a value has at most.
        scale: how many of them are behind the point.
    """

    precision: int
    scale: int

    def of(self, number: Decimal) -> Decimal:
        """Return the same number with the column's scale.

        Raises:
            NotThis: the number has too many digits, or needs rounding.
        """
        try:
            return number.quantize(self._unit, context=self._context)
        except (Inexact, InvalidOperation):
            raise NotThis(
                f"a column has {self.precision} digits, of which {self.scale} are behind the point"
            ) from None

    @cached_property
    def _unit(self) -> Decimal:
        return Decimal((0, (1,), -self.scale))

    @cached_property
    def _context(self) -> Context:
        return Context(
            prec=self.precision, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact, InvalidOperation]
        )
