"""Current addresses of the cluster's members: a fixed list, or owners that change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAddress:
    """Addresses of a server; clients outside of the members' network use its external address.

    Attributes:
        kafka_address, kafka_external_address: the same of its port for Kafka's clients; empty: it
            has none.
    """

    name: str
    address: str
    external_address: str = ""
    tcid: int = 0
    kafka_address: str = ""
    kafka_external_address: str = ""


class AddressBook(Protocol):
    """Finds members by name."""

    def find(self, member: MemberAddress) -> MemberAddress:
        """Return a member with its current addresses.

        While a shard has no owner, its address names no server: see ShardAddress.
        """
        ...


class FixedAddresses:
    """Members that stay where the list of members has them."""

    def find(self, member: MemberAddress) -> MemberAddress:
        """Return the member as it is."""
        return member


def found(book: AddressBook, members: Iterable[MemberAddress]) -> list[MemberAddress]:
    """Return members with their current addresses, in order."""
    return [book.find(member) for member in members]
