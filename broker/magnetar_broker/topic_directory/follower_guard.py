"""Guard of a follower's store: it serves nobody before the first broker has accepted its store.

A follower that was accepted once serves from its own store at once, also while the first broker is
away. A follower whose data directory has vanished comes with a new store, and is refused: it would
tell coordinators that the participants of their commits are gone.
Source: docs/design/0008-cluster.md, The directory; docs/protocol/rules.md, rule n.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from magnetar_core.errors import DataLoss, LogUnavailable, MagnetarError

log = logging.getLogger(__name__)

# Commands that are answered in any case.
ALWAYS: Final = frozenset({"hello", "get_cluster_info"})


class FollowerGuard:
    """Decides whether a follower may serve."""

    always = ALWAYS

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
            log.critical("nobody is served from this broker's store: %s", reason)

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
            # It may be mended: nobody may take this for an answer.
            return LogUnavailable(f"this broker serves nobody: {self._refusal}")
        return LogUnavailable(
            f"this broker has not met {self._first_name}, the first broker, which knows whether"
            " its store is the right one: ask again"
        )


def is_refusal(error: MagnetarError) -> bool:
    """Return whether the first broker's error says that this store is not the known one."""
    return isinstance(error, DataLoss)
