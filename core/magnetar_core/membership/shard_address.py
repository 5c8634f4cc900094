"""Address of a shard: the server that has it, its number, and the epoch of that ownership. Pure.

    HOST:PORT#SHARD.EPOCH, as in 10.0.0.1:6650#3.1742

A shard that changes its owner changes its address, also when it comes back to the same server. So a
connection to an address never reaches another owner of the shard than the one that was meant.
Source: docs/design/0009-owners.md, Addresses.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

# In the metadata of a conversation that is meant for one shard.
SHARD_KEY = "magnetar-shard"

# Clients read the address of each shard with every answer that names the members.
_KNOWN_MAX = 4_096

_PLACE = re.compile(r"(\d{1,4})\.(\d{1,19})", re.ASCII)


class ShardPlace(NamedTuple):
    """A shard of a server, as a conversation names it: the number, and the ownership's epoch."""

    shard: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.shard}.{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> ShardPlace:
        """Read a text of str().

        Raises:
            ValueError: the text is not a place.
        """
        found = _PLACE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not SHARD.EPOCH")
        return cls(int(found[1]), int(found[2]))


class ShardAddress(NamedTuple):
    """Address of a shard.

    Attributes:
        server: "host:port"; empty: no server has the shard at the moment.
    """

    server: str
    place: ShardPlace

    def __str__(self) -> str:
        return f"{self.server}#{self.place}"

    @staticmethod
    @lru_cache(_KNOWN_MAX)
    def parse(text: str) -> ShardAddress | None:
        """Read a text of str(); None for an address that names a server alone.

        Raises:
            ValueError: the text after the # is not a place.
        """
        server, mark, place = text.partition("#")
        return ShardAddress(server, ShardPlace.parse(place)) if mark else None


def server_of(address: str) -> str:
    """Return the address of the server alone, "host:port"."""
    return address.partition("#")[0]
