"""Memory of commands that the broker parks, with limits in all and for each connection.

A parked command waits for an event: the end of a transaction (rule k), or a coordinator's
announcement (rule f).
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_broker.budgets.open_bytes import Accounts
from magnetar_broker.config import BrokerConfig
from magnetar_core.errors import LogUnavailable
from magnetar_core.server.commands import Reply

# Memory of a parked command, besides its payload.
PARKED_OVERHEAD_BYTES = 1_024


class ParkedBytes:
    """Counts the bytes of all parked commands of a broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._total = 0
        # Accounts of the connections that sent them.
        self._accounts = Accounts()

    def take(self, byte_count: int, reply: Reply, awaited: str) -> Callable[[], None]:
        """Count a command, and return what gives its bytes back.

        Args:
            byte_count: of the command's payload.
            awaited: the event, for the text of the error.
        Raises:
            LogUnavailable: a limit is reached. No effect.
        """
        size = PARKED_OVERHEAD_BYTES + byte_count
        account = self._accounts.of(reply.session, reply.origin)
        for parked_bytes, setting in (
            (account.byte_count, "session_parked_bytes_max"),
            (self._total, "parked_bytes_max"),
        ):
            limit = getattr(self._config, setting)
            if parked_bytes and parked_bytes + size > limit:
                raise LogUnavailable(
                    f"{parked_bytes} bytes of commands wait already, and this one would wait for"
                    f" {awaited}: send it again later, or raise {setting}",
                    **{setting: limit},
                )
        self._total += size
        account.add(size)

        def give_back() -> None:
            self._total -= size
            account.add(-size)

        return give_back
