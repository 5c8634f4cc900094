"""Quota of bytes that open transactions hold in the sidecars, in all and per conversation.

Plain sends that wait for a transaction have accounts of the same kind (rule k).

When a conversation ends, its open bytes count for the client's machine. Bytes of unary calls count
there too, so a client that reconnects does not start with an empty account.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

from magnetar_core.access.principal import Principal
from magnetar_core.errors import QuotaExceeded
from magnetar_core.invariants import BrokenInvariant


class Conversation(Protocol):
    """The part of a CommandSession that accounts need."""

    def listen(self, listener: Any) -> None:
        """Tell the listener when the conversation ends."""


class Account:
    """Account of a conversation. With its transactions, it outlives the conversation."""

    __slots__ = ("__weakref__", "_has_left", "_machine", "_own_bytes")

    def __init__(self, machine: Account | None = None) -> None:
        self._own_bytes = 0
        # Account of the machine, which takes over open bytes of ended conversations.
        self._machine = machine
        self._has_left = False

    @property
    def byte_count(self) -> int:
        """Bytes that count for the limit: its own, and those that its machine has left open."""
        own_bytes = 0 if self._has_left else self._own_bytes
        # The machine itself never leaves.
        return own_bytes if self._machine is None else own_bytes + self._machine._own_bytes

    def add(self, byte_count: int) -> None:
        """Add bytes.

        Args:
            byte_count: negative, when a transaction has ended.
        """
        self._own_bytes += byte_count
        if self._own_bytes < 0:
            raise BrokenInvariant("more is given back than was taken")
        if self._has_left and self._machine is not None:
            self._machine.add(byte_count)

    # SessionListener.

    def session_writable(self, writable: bool) -> None:
        """Ignore the event: accounts do not depend on it."""

    def session_closed(self) -> None:
        """Move the bytes to the machine's account."""
        self._has_left = True
        if self._machine is not None:
            self._machine.add(self._own_bytes)


class Accounts:
    """Accounts of all conversations, and of the machines from which they come."""

    def __init__(self) -> None:
        self._accounts: WeakKeyDictionary[Conversation, Account] = WeakKeyDictionary()
        self._machines: WeakValueDictionary[str, Account] = WeakValueDictionary()
        # The conversation that was asked for last, with its account.
        self._last: Callable[[], Conversation | None] = _no_conversation
        self._last_account = Account()

    def of(self, session: Conversation | None, origin: str) -> Account:
        """Return the account of a conversation; for a unary call, of the machine."""
        if session is None:
            return self._machine(origin)
        # A frame has many commands of a conversation in a row.
        if self._last() is session:
            return self._last_account
        account = self._accounts.get(session)
        if account is None:
            account = self._accounts[session] = Account(self._machine(origin))
            session.listen(account)
        self._last, self._last_account = ref(session), account
        return account

    def _machine(self, origin: str) -> Account:
        machine = self._machines.get(origin)
        if machine is None:
            machine = self._machines[origin] = Account()
        return machine


def _no_conversation() -> None:
    return None


class OpenBytes:
    """Limits of a broker on bytes of open transactions."""

    def __init__(self, *, total_max: int, session_max: int) -> None:
        self.total = 0
        self._total_max = total_max
        self._session_max = session_max
        self._accounts = Accounts()

    def account(self, session: Conversation | None, origin: str) -> Account:
        """Return the account of a conversation; for a unary call, of the machine."""
        return self._accounts.of(session, origin)

    def check(self, account: Account, byte_count: int) -> None:
        """Check that an account may hold more bytes.

        Raises:
            QuotaExceeded: the account or the broker would exceed its limit.
        """
        if account.byte_count + byte_count > self._session_max:
            raise QuotaExceeded(
                f"open transactions from this client's machine hold {account.byte_count} bytes: "
                "end some, or raise"
                " session_open_txn_bytes_max",
                session_open_txn_bytes_max=self._session_max,
            )
        self._check_total(byte_count)

    def account_of_principal(self, principal: Principal) -> Account:
        """Return the account of a principal, for all its connections together."""
        # No machine has such an address.
        return self._accounts.of(None, f"principal {principal}")

    def check_principal(self, account: Account, byte_count: int, limit: int) -> None:
        """Check that a principal may hold more bytes.

        Raises:
            QuotaExceeded: the principal or the broker would exceed its limit.
        """
        if account.byte_count + byte_count > limit:
            raise QuotaExceeded(
                f"this principal's open transactions hold {account.byte_count} bytes here: end"
                " some, or raise open_txn_bytes_max of its quota in the access file",
                open_txn_bytes_max=limit,
            )
        self._check_total(byte_count)

    def _check_total(self, byte_count: int) -> None:
        if self.total + byte_count > self._total_max:
            raise QuotaExceeded(
                f"open transactions hold {self.total} bytes on this broker: end some, or raise"
                " open_txn_bytes_max",
                open_txn_bytes_max=self._total_max,
            )

    def take(self, account: Account | None, byte_count: int) -> None:
        """Add bytes to an account; None: to the total alone."""
        if account is not None:
            account.add(byte_count)
        self.total += byte_count

    def give_back(self, account: Account | None, byte_count: int) -> None:
        """Remove bytes from an account: their transaction has ended here."""
        if account is not None:
            account.add(-byte_count)
        self.total -= byte_count
        if self.total < 0:
            raise BrokenInvariant("more is given back than was taken")
