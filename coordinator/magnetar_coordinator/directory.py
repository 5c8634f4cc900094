"""Directory that finds the broker of a partition. Pure."""

from __future__ import annotations

from typing import Protocol

from magnetar_core.ids import PartitionName


class BrokerDirectory(Protocol):
    """Directory of brokers. Placement of partitions will grow behind this interface."""

    def address_of(self, partition: PartitionName) -> str:
        """Return the address of the broker that serves a partition."""

    def addresses(self) -> tuple[str, ...]:
        """All brokers: each hears the low watermark."""
        ...


class SingleBroker:
    """Directory of a cluster with a single broker, which serves everything."""

    def __init__(self, address: str) -> None:
        self._address = address

    def address_of(self, partition: PartitionName) -> str:
        """Return the broker's address."""
        return self._address

    def addresses(self) -> tuple[str, ...]:
        """The broker's address."""
        return (self._address,)
