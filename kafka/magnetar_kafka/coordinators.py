"""Links to the transaction coordinators, which decide about all transactions of Kafka's clients.

A transactional id has one coordinator, found by hashing, as for clients of ours. A command that a
link loses is not sent again here: the client of Kafka asks again, and the state is looked up then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, Self

from magnetar_core.errors import LogUnavailable
from magnetar_core.link.broker_link import COORDINATOR
from magnetar_core.link.link_settings import LinkSettings
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.membership.placement import tcid_of
from magnetar_core.transport.transport import Transport
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_kafka.server_link import ServerLink

# Longer than a coordinator lets a command wait for the end of the transaction before.
ANSWER_DEADLINE_S = 10.0

AnyCommand = (
    pb.CommandInitProducer
    | pb.CommandNewTxn
    | pb.CommandAddPartitionToTxn
    | pb.CommandAddSubscriptionToTxn
    | pb.CommandEndTxn
    | pb.CommandDescribeTransactionalId
    | pb.CommandListTransactionalIds
    | pb.CommandDescribeTxn
    | pb.CommandListTxns
    | pb.CommandAbortHangingTxn
    | pb.CommandAcceptTxnLoss
)


class Coordinators:
    """All coordinators of the cluster.

    Args:
        links: to each of them, by its number; none: there are no transactions.
    """

    def __init__(self, links: Mapping[int, ServerLink] = MappingProxyType({})) -> None:
        self._links = links

    @classmethod
    def of(
        cls,
        members: Iterable[MemberAddress],
        transport: Transport,
        settings: LinkSettings,
        random: Random,
    ) -> Self:
        """Return those of a list of members.

        Args:
            settings: of the links to them.
        """
        return cls(
            {
                one.tcid: ServerLink(
                    one,
                    transport,
                    settings,
                    random,
                    service=COORDINATOR,
                    title=f"the coordinator at {one.address}",
                )
                for one in members
            }
        )

    def start(self) -> None:
        """Begin to connect."""
        for one in self._links.values():
            one.start()

    async def close(self) -> None:
        """End all links; what waits for an answer is told that none will come."""
        for one in self._links.values():
            await one.close()

    @property
    def tcids(self) -> Iterable[int]:
        """The coordinators."""
        return self._links.keys()

    async def ask(self, transactional_id: str, command: AnyCommand) -> Any:
        """Return the answer of a transactional id's coordinator.

        Raises:
            MagnetarError: as ask_one().
        """
        if not self._links:
            raise LogUnavailable("the cluster has no coordinator")
        return await self.ask_one(tcid_of(transactional_id, self._links), command)

    async def ask_one(self, tcid: int, command: AnyCommand) -> Any:
        """Return a coordinator's answer.

        Raises:
            LogUnavailable: it is away, the link broke, or no answer came in time.
            MagnetarError: it refuses.
        """
        link = self._links.get(tcid)
        if link is None:
            raise LogUnavailable(f"coordinator {tcid} is not known")
        return await link.ask(command, ANSWER_DEADLINE_S)
