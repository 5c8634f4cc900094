"""Shards that a member could not open, and leaves to others for some time. Pure.

A member whose credentials, network or disk are wrong opens none of its shards, and would keep its
part from members that can. So it says in its row which shards it refuses, and others get them. One
shard after the other is tried again, with pauses that grow; when one opens, all are welcome again.
Source: docs/design/0009-owners.md, Placement of shards.
"""

from __future__ import annotations

from collections.abc import Collection

from magnetar_cluster.directory.view import ShardName
from magnetar_cluster.host_settings import HostSettings
from magnetar_core.backoff import Randomness, delay_ms


class UnopenableShards:
    """The shards that a member refuses.

    Attributes:
        again_at_ms: when the next of them is tried again; None: there is none.
    """

    def __init__(self, settings: HostSettings, random: Randomness) -> None:
        self.again_at_ms: float | None = None
        self._settings = settings
        self._random = random
        # In the order in which they failed: the one that is tried first failed longest ago.
        self._shards: dict[ShardName, None] = {}
        self._tried: ShardName | None = None
        self._rounds = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the shards that are refused, in order."""
        return tuple(sorted(one.number for one in self._shards))

    def failed(self, shard: ShardName, failures: int, now_ms: float) -> None:
        """A shard could not be opened, or ended by itself.

        Args:
            failures: how often that was so in a row, this time included.
        """
        # Where others failed already, the member is at fault, rather than the shard.
        enough = 1 if self._shards or self._tried else self._settings.constants.opening_failures_max
        if failures < enough:
            return
        if (
            self.again_at_ms is not None
            and now_ms - self.again_at_ms > self._settings.constants.refusal_pause_ms_max
        ):
            self._rounds = 0
        if shard == self._tried:
            self._tried = None
            self._rounds += 1
        # A shard that all members refuse is tried all the time where it belongs. The others do not
        # wait longer for that.
        again = shard in self._shards
        self._shards.pop(shard, None)
        self._shards[shard] = None
        if not again:
            self._pause(now_ms)

    def opened(self, shard: ShardName) -> None:
        """A shard is open. If it was among those that failed, the member can open others, too."""
        if shard in self._shards or shard == self._tried:
            self._shards.clear()
            self._tried = None

    def try_one(self, here: Collection[ShardName], now_ms: float) -> None:
        """Stop refusing the next shard, to see whether it can be opened by now.

        Args:
            here: shards that would lie at this member if it refused none. Shards before the next
                one of these are no longer refused either, which has no effect: they belong
                elsewhere.
        """
        self._tried = None
        while self._shards and self._tried is None:
            shard = next(iter(self._shards))
            del self._shards[shard]
            if shard in here:
                self._tried = shard
        self._pause(now_ms)

    def _pause(self, now_ms: float) -> None:
        self.again_at_ms = now_ms + delay_ms(
            self._rounds,
            self._settings.constants.refusal_pause_ms_min,
            self._settings.constants.refusal_pause_ms_max,
            self._random,
        )
