"""Guards of brokers whose store is new, or not the right one: they refuse all commands for now.

If an empty store served in the place of one that has vanished, coordinators would be told that the
participants of their commits are gone, and take the commits for done. So the first broker waits for
its coordinators, and each other broker for the first one.
Source: docs/design/0008-cluster.md, The directory; docs/protocol/rules.md, rule n.
"""

from __future__ import annotations

import logging
from typing import Any

from magnetar_broker.config import BrokerConfig
from magnetar_broker.coordinators.incarnations import Incarnations
from magnetar_core.errors import DataLoss, LogUnavailable, MagnetarError

log = logging.getLogger(__name__)


class EmptyStoreGuard:
    """Guard of the first broker: with an empty store, it waits for its coordinators.

    Each coordinator of a new cluster takes an incarnation from the broker first. Coordinators of an
    old cluster took theirs long ago, from a store that has vanished.
    """

    # Commands that are answered even while this broker waits: the handshake, the list of members,
    # and the incarnations that coordinators take here, for which the broker waits. Followers that
    # know more than this broker say so in their logs.
    always = frozenset({"hello", "get_cluster_info", "take_incarnation", "follow_directory"})

    def __init__(self, config: BrokerConfig, incarnations: Incarnations) -> None:
        self._config = config
        self._incarnations = incarnations
        self._is_empty = False
        self._has_complained = False

    def recovered(self, *, is_empty: bool) -> None:
        """Note whether the store is empty.

        Args:
            is_empty: the store is empty, and the operator has not accepted that.
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
            "coordinator %d knows this broker with another store, so this broker refuses all"
            " commands. Its store is empty: its data directory vanished, or it was started on"
            " another one. Stop it, and put the directory back; or go on with nothing, which may"
            " tear transactions apart: magnetar storage accept-loss --everything DATA_DIR",
            tcid,
        )


class FollowerGuard:
    """Guard of a follower: it refuses commands until the first broker has accepted its store.

    A follower that was accepted once serves from its own store at once, also while the first broker
    is away. A follower whose data directory has vanished comes with a new store, and is refused.
    """

    # Commands that are answered in any case.
    always = frozenset({"hello", "get_cluster_info"})

    def __init__(self, first_name: str) -> None:
        self._first_name = first_name
        self.is_accepted = False
        self._refusal = ""

    def recovered(self, *, is_accepted: bool) -> None:
        """Note whether the store was accepted before."""
        self.is_accepted = is_accepted
        if not is_accepted:
            # Every new cluster begins so. A store that the first broker refuses is an error.
            log.info(
                "this broker's store is new to the first broker, %s: it serves when they have met",
                self._first_name,
            )

    def accepted(self) -> None:
        """Note that the first broker knows this store."""
        if not self.is_accepted:
            log.info("the first broker, %s, has accepted this broker's store", self._first_name)
        self.is_accepted = True
        self._refusal = ""

    def refused(self, reason: str) -> None:
        """Note that the first broker knows another store of this broker."""
        self.is_accepted = False
        if self._refusal != reason:
            self._refusal = reason
            log.critical("this broker refuses all commands: %s", reason)

    @property
    def may_refuse(self) -> bool:
        """Whether this broker refuses any command: its store may be refused at any time."""
        return True

    def check(self, name: str, command: Any) -> None:
        """Check that this broker serves; see Guard.check."""
        if not self.is_accepted:
            raise self._error()

    def _error(self) -> MagnetarError:
        if self._refusal:
            # It may be mended: the error must not count as an answer about the state.
            return LogUnavailable(f"this broker refuses all commands: {self._refusal}")
        return LogUnavailable(
            f"this broker has not met {self._first_name}, the first broker, which knows whether"
            " its store is the right one: ask again"
        )


def is_refusal(error: MagnetarError) -> bool:
    """Return whether the first broker's error says that this store is not the known one."""
    return isinstance(error, DataLoss)
