"""A member's lease and its row: begins them, renews the lease, and begins anew when it has ended.

Source: docs/design/0009-owners.md, Zombies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from magnetar_cluster.background import Background, outcome_of
from magnetar_cluster.directory.cluster_directory import (
    ClusterDirectory,
    ClusterDirectoryWentBack,
    LeaseExpired,
    LeaseId,
)
from magnetar_cluster.directory.view import Member, MemberName
from magnetar_cluster.host_settings import HostSettings
from magnetar_cluster.hosting.lease import Lease
from magnetar_core.backoff import Backoff, Randomness

_LOG = logging.getLogger(__name__)
# A renewed complaint about a name that is taken.
_COMPLAINT_INTERVAL_MS = 10_000


class LeaseListener(Protocol):
    """Listener to changes of the lease."""

    def lease_begun(self, lease: Lease) -> None:
        """The member has a new lease, and no row under it yet."""
        ...

    def row_written(self) -> None:
        """The member's row is written under its lease."""
        ...

    def lease_ended(self) -> None:
        """The lease is over, and with it everything that was bound to it."""
        ...

    def speech_changed(self, may_speak: bool) -> None:
        """The member has to be silent, or may speak again."""
        ...

    def went_back(self, error: ClusterDirectoryWentBack) -> None:
        """Forget earlier answers of the directory: it is at an earlier state."""
        ...


class MemberLease:
    """Keeps a member in the directory.

    Attributes:
        lease: the present one; None: there is none.
        renewals_failed: renewals that were refused, or not answered. leases_lost: leases that ended
            although the member did not give them up.

    Args:
        now_ms: a clock that counts sleep.
    """

    def __init__(
        self,
        directory: ClusterDirectory,
        settings: HostSettings,
        name: MemberName,
        member: Member,
        listener: LeaseListener,
        *,
        now_ms: Callable[[], float],
        random: Randomness,
    ) -> None:
        self.lease: Lease | None = None
        self.renewals_failed = 0
        self.leases_lost = 0
        self._directory = directory
        self._settings = settings
        self._name = name
        self._member = member
        self._listener = listener
        self._now_ms = now_ms
        self._random = random
        self._over = asyncio.Event()
        self._row_wanted = asyncio.Event()
        self._ending = False
        self._spoke = False
        self._silence: asyncio.TimerHandle | None = None
        self._given_up: LeaseId | None = None
        self._background = Background()

    def may_speak(self) -> bool:
        """Return whether the lease lets the member speak at this moment."""
        return self.lease is not None and self.lease.may_speak()

    def start(self) -> None:
        """Begin to keep a lease and the member's row."""
        self._background.start(self._run())

    def write_row(self, member: Member | None = None) -> None:
        """Write the member's row again: it was seen to be gone, or says something else now."""
        if member is not None:
            self._member = member
        self._row_wanted.set()

    def expired(self, lease: LeaseId) -> None:
        """The directory says that a lease has ended. Repeating it is harmless."""
        if self.lease is None or self.lease.id != lease:
            return
        _LOG.warning("the lease of %s has ended: its shards end here", self._name.name)
        self.leases_lost += 1
        self._let_go()

    def give_up(self) -> None:
        """Be silent for good. The directory is told when end() is called, or never."""
        self._ending = True
        if self.lease is not None:
            self._given_up = self.lease.id
            self._let_go()

    async def end(self) -> None:
        """Give up the lease, and stop asking. Members that wait for the shards get them."""
        self.give_up()
        await self._background.end()
        given_up, self._given_up = self._given_up, None
        if given_up is None:
            return
        try:
            async with asyncio.timeout(self._settings.lease_duration_ms / 1000):
                await outcome_of(self._directory.revoke(given_up))
        except Exception as error:
            _LOG.info("the lease of %s was not revoked, it ends by itself: %s", self._name, error)

    def _let_go(self) -> None:
        assert self.lease is not None
        self.lease.end()
        self.lease = None
        self._listener.lease_ended()
        self._check_speech()
        self._over.set()

    async def _run(self) -> None:
        while not self._ending:
            lease = await self._grant()
            if self._gives_back(lease):
                return
            self.lease = lease
            self._over.clear()
            self._row_wanted.set()
            renewing = self._background.start(self._renew(lease))
            joining = self._background.start(self._join(lease))
            self._listener.lease_begun(lease)
            self._check_speech()
            await self._over.wait()
            renewing.cancel()
            joining.cancel()
            # A directory that ends each lease at once is not asked without a pause.
            await asyncio.sleep(self._settings.constants.directory_pause_ms_min / 1000)

    def _gives_back(self, lease: Lease) -> bool:
        """Note a lease for end() to revoke if the member was given up meanwhile; return whether."""
        if self._ending:
            self._given_up = lease.id
        return self._ending

    async def _grant(self) -> Lease:
        backoff = self._backoff()
        while True:
            lease = Lease(self._settings.lease_duration_ms, self._now_ms)
            sent_at_ms = self._now_ms()
            try:
                number = await outcome_of(self._directory.grant(self._settings.lease_duration_ms))
            except Exception as error:
                if backoff.failures == 0:
                    _LOG.warning("%s gets no lease, and asks again: %s", self._name.name, error)
                await asyncio.sleep(backoff.next_ms() / 1000)
            else:
                lease.begun(number, sent_at_ms)
                return lease

    async def _renew(self, lease: Lease) -> None:
        """Send renewals; none waits for the answer to another one."""
        while True:
            await asyncio.sleep(self._settings.renewal_interval_ms / 1000)
            self._background.start(self._renew_once(lease))

    async def _renew_once(self, lease: Lease) -> None:
        sent_at_ms = self._now_ms()
        assert lease.id is not None
        try:
            await outcome_of(self._directory.renew(lease.id))
        except LeaseExpired:
            self.renewals_failed += 1
            self.expired(lease.id)
        except ClusterDirectoryWentBack as error:
            self.renewals_failed += 1
            self._listener.went_back(error)
        except Exception as error:
            self.renewals_failed += 1
            _LOG.info("the lease of %s was not renewed: %s", self._name.name, error)
        else:
            # The lease may have run out before the timer says so. A host that was silent, if only
            # for a moment, put off work that it may do now, and has to be told both.
            self._check_speech()
            lease.renewed(sent_at_ms)
            self._check_speech()

    async def _join(self, lease: Lease) -> None:
        """Write the member's row whenever it is asked for, until the directory has taken it."""
        assert lease.id is not None
        backoff = self._backoff()
        complained_at_ms: float | None = None
        while True:
            await self._row_wanted.wait()
            self._row_wanted.clear()
            member = self._member
            try:
                written = await outcome_of(self._directory.join(lease.id, self._name, member))
            except LeaseExpired:
                self.expired(lease.id)
                return
            except Exception as error:
                _LOG.info("%s could not join: %s", self._name.name, error)
                written = False
            else:
                if not written and (
                    complained_at_ms is None
                    or self._now_ms() - complained_at_ms >= _COMPLAINT_INTERVAL_MS
                ):
                    complained_at_ms = self._now_ms()
                    _LOG.warning(
                        "the name %s is taken: by this server's former life, until its lease ends,"
                        " or by another server, which then needs another name; asking again",
                        self._name.name,
                    )
            if written:
                backoff.reset()
                if not self._row_wanted.is_set():
                    self._listener.row_written()
                continue
            self._row_wanted.set()
            await asyncio.sleep(backoff.next_ms() / 1000)

    def _check_speech(self) -> None:
        """Tell the listener if the member may speak since now, or no longer; look again in time."""
        may_speak = self.may_speak()
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        if may_speak and self.lease is not None and self.lease.silent_at_ms is not None:
            # At least a millisecond: the loop's clock and this one need not agree.
            wait_ms = max(self.lease.silent_at_ms - self._now_ms(), 1.0)
            loop = asyncio.get_running_loop()
            self._silence = loop.call_later(wait_ms / 1000, self._check_speech)
        if may_speak is not self._spoke:
            self._spoke = may_speak
            self._listener.speech_changed(may_speak)

    def _backoff(self) -> Backoff:
        return Backoff(
            self._settings.constants.directory_pause_ms_min,
            self._settings.constants.directory_pause_ms_max,
            self._random,
        )
