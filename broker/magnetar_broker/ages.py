"""Ages of wall-clock stamps, without the jumps that the clock has made since.

A clock that is set forward by a day makes nothing a day older. Stamps from before a jump lie below
the time from which the clock has jumped, and no stamp lies in between; so that time tells which
jumps to leave out of an age. A clock that is set back first undoes earlier jumps forward. Beyond
that, stamps from while it was ahead count as younger than they are, never as older. Time while the
broker is down counts, since its jumps are not known.
"""

from __future__ import annotations

from typing import NamedTuple

from magnetar_core.clock import Clock

# With more jumps, the two oldest count as a single jump: entries between them are kept for longer.
JUMPS_MAX = 16


class Jump(NamedTuple):
    """A jump forward: its size, and the latest stamp before it."""

    before_ms: int
    jump_ms: int


class Ages:
    """Ages by the wall clock of a broker.

    Args:
        jump_ms_min: a smaller difference between the clocks counts as drift, or as a correction.
    """

    def __init__(self, clock: Clock, *, jump_ms_min: int) -> None:
        self._clock = clock
        self._jump_ms_min = jump_ms_min
        self._offset_ms = self._offset()
        # No stamp from before the last look is later than this.
        self._latest_ms = clock.wall_ms()
        self._jumps: list[Jump] = []

    @property
    def jumps(self) -> tuple[Jump, ...]:
        """The jumps that count, the oldest first."""
        return tuple(self._jumps)

    def restore(self, jumps: list[Jump]) -> None:
        """Take the jumps that earlier lives of the broker have stored."""
        self._jumps = jumps

    def note_stamp(self, stamp_ms: int) -> None:
        """Note a stamp of an earlier life of the broker, which new stamps may repeat.

        It is later than the clock if that was set back.
        """
        self._latest_ms = max(self._latest_ms, stamp_ms)

    def look(self) -> int:
        """Return by how many milliseconds the clock has jumped since the last look; 0: no jump."""
        offset_ms = self._offset()
        jump_ms = int(offset_ms - self._offset_ms)
        self._offset_ms = offset_ms
        wall_ms = self._clock.wall_ms()
        latest_ms = max(self._latest_ms, wall_ms - jump_ms)
        self._latest_ms = max(latest_ms, wall_ms)
        if abs(jump_ms) < self._jump_ms_min:
            return 0
        if jump_ms > 0:
            self._jumps.append(Jump(latest_ms, jump_ms))
            if len(self._jumps) > JUMPS_MAX:
                first, second = self._jumps[:2]
                self._jumps[:2] = [Jump(second.before_ms, first.jump_ms + second.jump_ms)]
        else:
            self._take_back(-jump_ms)
        return jump_ms

    def of(self, stamp_ms: int) -> int:
        """Return the age of a stamp in milliseconds; negative: the clock was set back since."""
        self.look()
        left_out_ms = sum(one.jump_ms for one in self._jumps if stamp_ms <= one.before_ms)
        return self._clock.wall_ms() - stamp_ms - left_out_ms

    def _take_back(self, back_ms: int) -> None:
        while self._jumps and back_ms:
            last = self._jumps.pop()
            taken_ms = min(back_ms, last.jump_ms)
            back_ms -= taken_ms
            if taken_ms < last.jump_ms:
                self._jumps.append(last._replace(jump_ms=last.jump_ms - taken_ms))

    def _offset(self) -> float:
        return self._clock.wall_ms() - self._clock.monotonic_ms()
