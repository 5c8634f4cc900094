"""Links to the transaction coordinators, which decide about all transactions of Kafka's clients.

A transactional id has one coordinator, found by hashing, as for clients of ours. A command that a
link loses is not sent again here: the client of Kafka asks again, and the state is looked up then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Self

from magnetar_core.errors import LogUnavailable, from_wire
from magnetar_core.link.broker_link import COORDINATOR, Answer, BrokerLink
from magnetar_core.link.link_questions import LinkQuestions
from magnetar_core.link.link_settings import LinkSettings
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.membership.placement import tcid_of
from magnetar_core.transport.transport import Transport
from magnetar_core.wire import transaction_pb2 as pb

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


class CoordinatorLink:
    """A link to a coordinator, and the questions on it that have no answer yet."""

    def __init__(
        self, member: MemberAddress, transport: Transport, settings: LinkSettings, random: Random
    ) -> None:
        address = member.address
        self.tcid = member.tcid
        self.link = BrokerLink(
            address,
            transport,
            settings,
            random,
            on_up=_nothing,
            on_answers=self._on_answers,
            on_down=lambda: self.questions.link_is_down(),
            service=COORDINATOR,
        )
        self.questions = LinkQuestions(self.link, f"the coordinator at {address}")

    def _on_answers(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self.questions.on_answer(*answer)


class Coordinators:
    """All coordinators of the cluster.

    Args:
        links: to each of them; none: there are no transactions.
    """

    def __init__(self, links: Iterable[CoordinatorLink] = ()) -> None:
        self._links = {one.tcid: one for one in links}

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
        return cls(CoordinatorLink(one, transport, settings, random) for one in members)

    def start(self) -> None:
        """Begin to connect."""
        for one in self._links.values():
            one.link.start()

    async def close(self) -> None:
        """End all links; what waits for an answer is told that none will come."""
        for one in self._links.values():
            one.questions.link_is_down()
            await one.link.close()

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
        answer: asyncio.Future[tuple[str, Any]] = asyncio.get_running_loop().create_future()

        def on_answer(name: str, body: Any) -> None:
            if not answer.done():
                answer.set_result((name, body))

        link = self._links.get(tcid)
        if link is None:
            raise LogUnavailable(f"coordinator {tcid} is not known")
        number = link.questions.ask(command, on_answer)
        try:
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                name, body = await answer
        except TimeoutError:
            raise LogUnavailable("the coordinator does not answer: ask again") from None
        finally:
            link.questions.forget(number)
        if name == "error":
            raise from_wire(body)
        return body


def _nothing() -> None:
    return
