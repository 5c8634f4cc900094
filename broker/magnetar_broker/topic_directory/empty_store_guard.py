"""Guard of a broker with an empty store: it waits for its coordinators before it serves.

Each coordinator of a new cluster takes an incarnation from the broker first. Coordinators of an old
cluster took theirs long ago, from a store that has vanished. If an empty store served in its place,
they would hear that the participants of their commits are gone, and take the commits for done.
Source: docs/protocol/rules.md, rule n.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from magnetar_broker.config import BrokerConfig
from magnetar_broker.coordinators.incarnations import Incarnations
from magnetar_core.errors import LogUnavailable

log = logging.getLogger(__name__)

# Commands that are answered even while this broker waits: the handshake, the list of members, and
# the incarnations that coordinators take here, for which the broker waits. Followers that know more
# than this broker say so in their logs.
ALWAYS: Final = frozenset({"hello", "get_cluster_info", "take_incarnation", "follow_directory"})


class EmptyStoreGuard:
    """Decides whether this broker may serve."""

    always = ALWAYS

    def __init__(self, config: BrokerConfig, incarnations: Incarnations) -> None:
        self._config = config
        self._incarnations = incarnations
        self._is_empty = False
        self._has_complained = False

    def recovered(self, *, is_empty: bool) -> None:
        """Note whether the store is empty.

        Args:
            is_empty: the store holds nothing, and nobody has accepted that.
        """
        # Without a list of members there are no coordinators to wait for.
        self._is_empty = is_empty and bool(self._config.cluster_hash)
        if self.is_waiting:
            # Every new cluster begins so. A coordinator that knows another store is an error.
            log.info(
                "this broker's store is new: it serves when %s have begun with it, for which they"
                " have to be started with the same list of members, in which this is the first"
                " broker",
                ", ".join(self._missing()),
            )

    @property
    def is_waiting(self) -> bool:
        """Whether this broker still waits for coordinators."""
        if self._is_empty and not self._missing():
            self._is_empty = False
        return self._is_empty

    @property
    def may_refuse(self) -> bool:
        """Whether this broker refuses any command: once it serves, it goes on."""
        return self.is_waiting

    def check(self, name: str, command: Any) -> None:
        """Check that this broker serves; see Guard.check."""
        if not self.is_waiting:
            return
        if name == "low_watermark":
            self._complain(command.tcid)
        raise LogUnavailable(
            f"this broker's store is empty, and it waits for {', '.join(self._missing())} to begin"
            " with it; its log says more"
        )

    def _missing(self) -> list[str]:
        return [
            one.name for one in self._config.coordinators if not self._incarnations.has(one.tcid)
        ]

    def _complain(self, tcid: int) -> None:
        if self._has_complained or self._incarnations.has(tcid):
            return
        self._has_complained = True
        log.critical(
            "coordinator %d knows this broker with another store, so nobody is served from this"
            " one, which is empty: its data directory vanished, or it was started on another one."
            " Stop it, and put the directory back; or go on with nothing, which may tear"
            " transactions apart: magnetar storage accept-loss --everything DATA_DIR",
            tcid,
        )
