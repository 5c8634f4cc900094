"""Roles of a broker in its cluster: the first one keeps the directory, the others follow it.

Source: docs/design/0008-cluster.md, The directory.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from magnetar_broker.commands.guard import Guard
from magnetar_broker.commands.service import DirectoryCommands
from magnetar_broker.coordinators.coordinator_sessions import CoordinatorSessions
from magnetar_broker.coordinators.incarnations import Incarnations
from magnetar_broker.environment import Environment
from magnetar_broker.groups.groups import Groups
from magnetar_broker.topic_directory.broker_stores import BrokerStores
from magnetar_broker.topic_directory.empty_store_guard import EmptyStoreGuard
from magnetar_broker.topic_directory.follower import DirectoryFollower
from magnetar_broker.topic_directory.follower_guard import FollowerGuard
from magnetar_broker.topic_directory.keeper import DirectoryKeeper
from magnetar_broker.topic_directory.passing import DirectoryPassing
from magnetar_broker.topics.topics import Topics
from magnetar_core.transport.transport import Transport


class DirectoryRole(Protocol):
    """A broker's part in the directory."""

    @property
    def guard(self) -> Guard:
        """Decides whether this broker may serve."""
        ...

    @property
    def commands(self) -> DirectoryCommands:
        """The handlers of commands about topics."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether this broker hears of new topics, as far as it knows."""
        ...

    async def recover(self, losses: int) -> None:
        """Read what the store has of it; the topics are recovered already.

        Args:
            losses: how many losses of this store were accepted.
        """

    def start(self) -> None:
        """Begin to speak with other brokers."""

    def stop(self) -> None:
        """Speak with nobody any more, and let nobody know."""

    async def close(self) -> None:
        """Speak with nobody any more."""

    def may_have_incarnation(self, tcid: int) -> bool:
        """Return whether a coordinator may have taken an incarnation, as far as is known here."""
        ...

    def admit_store(self, tcid: int, incarnation: int, store_token: str) -> None:
        """Check that a coordinator's store took an incarnation in this cluster.

        Raises:
            InvalidTxnState: it did not.
            Unheard: this broker does not know.
        """


class FirstBroker:
    """The first broker of the list; a broker that is alone is the first one, too."""

    # It makes them.
    is_current = True

    def __init__(
        self,
        environment: Environment,
        topics: Topics,
        groups: Groups,
        incarnations: Incarnations,
        coordinators: CoordinatorSessions,
        transport: Transport,
        random: Random,
    ) -> None:
        self._topics = topics
        self._incarnations = incarnations
        self._stores = BrokerStores(environment)
        self.guard = EmptyStoreGuard(environment.config, incarnations)
        self.commands = DirectoryKeeper(
            environment,
            topics,
            groups,
            incarnations,
            coordinators,
            self._stores,
            transport,
            random,
        )

    async def recover(self, losses: int) -> None:
        """Read the incarnations, and the stores of the other brokers."""
        await self._incarnations.recover()
        await self._stores.recover()
        is_new = not self._topics.by_id and self._topics.next_serial == 1
        self.guard.recovered(is_empty=is_new and not losses)
        await self.commands.recover(losses)

    def start(self) -> None:
        """Begin to connect to the other brokers."""
        self.commands.start()

    def stop(self) -> None:
        """Break the links to the other brokers."""
        self.commands.stop()

    async def close(self) -> None:
        """Let nobody wait any longer."""
        await self.commands.close()

    def may_have_incarnation(self, tcid: int) -> bool:
        """Return whether a coordinator took an incarnation here."""
        return self._incarnations.has(tcid)

    def admit_store(self, tcid: int, incarnation: int, store_token: str) -> None:
        """Check that a coordinator's store took an incarnation here."""
        self.commands.admit_store(tcid, incarnation, store_token)


class Follower:
    """Any other broker."""

    def __init__(
        self,
        environment: Environment,
        topics: Topics,
        groups: Groups,
        transport: Transport,
        random: Random,
    ) -> None:
        self.guard = FollowerGuard(environment.config.brokers[0].name)
        self._follower = DirectoryFollower(
            environment, topics, groups, self.guard, transport, random
        )
        self.commands = DirectoryPassing(environment, topics, self._follower)

    @property
    def is_current(self) -> bool:
        """Whether the link to the first broker is up, and its directory is followed."""
        return self._follower.is_current

    async def recover(self, losses: int) -> None:
        """Read what is known of the directory, besides the topics."""
        await self._follower.recover(losses)

    def start(self) -> None:
        """Begin to follow."""
        self._follower.start()

    def stop(self) -> None:
        """Break the link to the first broker."""
        self._follower.stop()

    async def close(self) -> None:
        """Stop following."""
        await self._follower.close()

    def may_have_incarnation(self, tcid: int) -> bool:
        """Return whether a coordinator took one, or may have done so without being known here."""
        return self._follower.may_have(tcid)

    def admit_store(self, tcid: int, incarnation: int, store_token: str) -> None:
        """Check that a coordinator's store took an incarnation, as far as is known here."""
        self._follower.admit_store(tcid, incarnation, store_token)
