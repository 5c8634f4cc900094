"""Placement: it finds the broker of a participant. Pure.

The name of a partition says in which shard it lies, and the position in the list says which broker
keeps that shard: no broker is asked, and a recovered COMMITTING transaction goes on at once.
Source: docs/design/0008-cluster.md, Placement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from magnetar_coordinator.metadata.transaction import Participant
from magnetar_core.errors import InvalidArgument
from magnetar_core.membership.placement import shard_of


class BrokerPlacement:
    """Brokers of the cluster, in the order of their shards."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._addresses = tuple(addresses)

    def addresses(self) -> tuple[str, ...]:
        """All brokers: each is told the low watermark."""
        return self._addresses

    def address_of(self, participant: Participant) -> str:
        """Return the address of the broker that keeps a participant.

        A client may invent an id whose shard no broker keeps: the first broker, which issues the
        ids, answers for it.
        """
        shard = shard_of(participant.topic_id, participant.partition)
        return self._addresses[shard if shard < len(self._addresses) else 0]

    def divide(self, participants: Collection[Participant]) -> dict[str, Collection[Participant]]:
        """Return the participants of each broker, by its address, in their order."""
        if len(self._addresses) == 1:
            return {self._addresses[0]: participants}
        found: dict[str, list[Participant]] = {}
        for participant in participants:
            found.setdefault(self.address_of(participant), []).append(participant)
        return dict(found)

    def require_placed(self, participants: Iterable[Participant]) -> None:
        """Check that the participants' names say on which broker they are.

        Raises:
            InvalidArgument: a topic's id is missing, and there are several brokers.
        """
        if len(self._addresses) == 1:
            return
        for participant in participants:
            if not participant.topic_id:
                raise InvalidArgument(
                    f"{participant} lacks the topic's id, which says on which of the"
                    f" {len(self._addresses)} brokers it is; look the topic up, and send its id"
                )
