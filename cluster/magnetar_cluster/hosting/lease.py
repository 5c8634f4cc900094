"""Lease of a member: how long it may speak for its shards. Pure.

A directory ends a lease when its duration has passed since it *got* the last renewal. A member may
speak for two thirds of the duration, counted from when it *sent* the last renewal that was
answered. So it is silent before another member has its shards, though its clock may run somewhat
slower than the directory's.
Source: docs/design/0009-owners.md, Zombies.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_cluster.directory.cluster_directory import LeaseId


class Lease:
    """One lease of a member, from its grant to its end.

    Args:
        duration_ms: after which the directory ends the lease, unless it is renewed.
        now_ms: a clock that counts sleep.
    Attributes:
        speaking_ms: for how long the member may speak after a renewal was sent.
    """

    def __init__(self, duration_ms: int, now_ms: Callable[[], float]) -> None:
        self.id: LeaseId | None = None
        self.duration_ms = duration_ms
        self.speaking_ms = duration_ms * 2 / 3
        self._now_ms = now_ms
        self._sent_at_ms: float | None = None
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the lease is over for good."""
        return self._ended

    @property
    def silent_at_ms(self) -> float | None:
        """When the member has to be silent, unless a renewal is answered; None: it is already."""
        if self._ended or self._sent_at_ms is None:
            return None
        return self._sent_at_ms + self.speaking_ms

    @property
    def age_ms(self) -> float | None:
        """Time since the last renewal that was answered was sent; None: there is no lease."""
        if self._ended or self._sent_at_ms is None:
            return None
        return self._now_ms() - self._sent_at_ms

    def begun(self, lease: LeaseId, sent_at_ms: float) -> None:
        """The directory has granted the lease.

        Args:
            sent_at_ms: when it was asked for.
        """
        self.id = lease
        self.renewed(sent_at_ms)

    def renewed(self, sent_at_ms: float) -> None:
        """The directory has answered a renewal.

        Args:
            sent_at_ms: when the renewal was sent. Answers may overtake each other.
        """
        if self._sent_at_ms is None or sent_at_ms > self._sent_at_ms:
            self._sent_at_ms = sent_at_ms

    def end(self) -> None:
        """The lease has ended, or was given up: nothing revives it."""
        self._ended = True

    def may_speak(self) -> bool:
        """Return whether no other member can have this member's shards at this moment."""
        silent_at_ms = self.silent_at_ms
        return silent_at_ms is not None and self._now_ms() < silent_at_ms
