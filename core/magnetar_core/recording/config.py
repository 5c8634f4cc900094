"""Settings of a server's history."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.config import InvalidConfig, check_numbers

# Lines that say why recording ended always fit.
HISTORY_BYTES_MIN = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryConfig:
    """Settings of the history that a server writes.

    Attributes:
        history_dir: directory for the history of the protocol, made if it does not exist. Each
            broker and coordinator begins a file there with each start, and adds a line for each
            event: what it opened, decided, stored, ended and answered. `magnetar check --history`
            reads them. They have names of topics and subscriptions, and never messages, keys or
            tokens. Empty: there is no history.
        history_bytes_max: limit on the size of all files of a broker or coordinator in
            history_dir. Beyond it the server goes on without its history, and says so. Higher: a
            longer history. Lower: less disk. A transaction takes about 3 KB in all files together.
    """

    history_dir: str = ""
    history_bytes_max: int = 1 << 30

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.history_bytes_max < HISTORY_BYTES_MIN:
            raise InvalidConfig(f"history_bytes_max must be at least {HISTORY_BYTES_MIN}")
