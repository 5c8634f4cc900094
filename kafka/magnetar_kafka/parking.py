"""Parking: memory of fetches that wait for messages, of all clients and of each principal.

A fetch may name thousands of partitions, and may wait for a minute. One for which there is no place
is answered at once, and its connection rests for a moment.
"""

from __future__ import annotations

from magnetar_core.access.principal import Principal

# Of objects, for each partition that a fetch names.
PARTITION_BYTES = 1_536


class Parking:
    """Places for fetches that wait.

    Args:
        bytes_max: of all of them; a principal may have half.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken = 0
        self._of_principal: dict[Principal, int] = {}

    def take(self, principal: Principal, partitions: int) -> int | None:
        """Take a place for a fetch; return its bytes, for give_back(); None: there is none.

        Args:
            partitions: that it names.
        """
        byte_count = partitions * PARTITION_BYTES
        own = self._of_principal.get(principal, 0) + byte_count
        if own > self._bytes_max // 2 or self._taken + byte_count > self._bytes_max:
            return None
        self._taken += byte_count
        self._of_principal[principal] = own
        return byte_count

    def give_back(self, principal: Principal, byte_count: int) -> None:
        """Give a place back."""
        self._taken -= byte_count
        left = self._of_principal[principal] - byte_count
        if left:
            self._of_principal[principal] = left
        else:
            del self._of_principal[principal]
