"""What open transactions hold in the sidecars: in all, and by the conversation that sent it."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from magnetar_core.errors import QuotaExceeded


@dataclass(slots=True)
class Account:
    """One conversation's share. It outlives the conversation, with its transactions."""

    byte_count: int = 0


class OpenBytes:
    """One broker's limits on them."""

    def __init__(self, *, total_max: int, session_max: int) -> None:
        self.total = 0
        self._total_max = total_max
        self._session_max = session_max
        self._accounts: WeakKeyDictionary[object, Account] = WeakKeyDictionary()

    def account(self, session: object | None) -> Account:
        """Whom to charge; unary calls, which have no conversation, each on their own."""
        if session is None:
            return Account()
        account = self._accounts.get(session)
        if account is None:
            account = self._accounts[session] = Account()
        return account

    def check(self, account: Account, byte_count: int) -> None:
        """Raises: QuotaExceeded, when so much more is too much."""
        if account.byte_count + byte_count > self._session_max:
            raise QuotaExceeded(
                f"this connection's open transactions hold {account.byte_count} bytes: end some, or"
                " raise session_open_txn_bytes_max",
                session_open_txn_bytes_max=self._session_max,
            )
        if self.total + byte_count > self._total_max:
            raise QuotaExceeded(
                f"open transactions hold {self.total} bytes on this broker: end some, or raise"
                " open_txn_bytes_max",
                open_txn_bytes_max=self._total_max,
            )

    def take(self, account: Account, byte_count: int) -> None:
        account.byte_count += byte_count
        self.total += byte_count

    def give_back(self, account: Account, byte_count: int) -> None:
        """Their transaction has ended here."""
        account.byte_count -= byte_count
        self.total -= byte_count
        assert account.byte_count >= 0
        assert self.total >= 0
