"""Which broker serves a partition. Pure."""

from __future__ import annotations

from typing import Protocol

from magnetar_core.ids import PartitionName


class BrokerDirectory(Protocol):
    """The choice of a broker, behind which placement will grow."""

    def address_of(self, partition: PartitionName) -> str: ...

    def addresses(self) -> tuple[str, ...]:
        """All brokers: each hears the low watermark."""
        ...


class SingleBroker:
    """A cluster with one broker: it serves everything."""

    def __init__(self, address: str) -> None:
        self._address = address

    def address_of(self, partition: PartitionName) -> str:
        return self._address

    def addresses(self) -> tuple[str, ...]:
        return (self._address,)
