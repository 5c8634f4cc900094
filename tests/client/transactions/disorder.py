"""What goes wrong in a cluster, as random numbers say: for commands, links and transactions."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from tests.client.fakes import FakeCluster
from tests.fake_link import FakeLink
from tests.playbook import BREAK, DROP, HOLD, LOSE
from tests.virtual_time import time_passes

from magnetar_core.errors import LogUnavailable, QuotaExceeded
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2

# Which commands go wrong in a play.
FAULTY = (
    ("new_txn", "add_partition_to_txn"),
    ("send", "ack", "add_partition_to_txn", "add_subscription_to_txn"),
    ("end_txn", "describe_txn"),
)


class ExpiringCluster(FakeCluster):
    """Aborts a transaction when its time is up."""

    def on_new_txn(self, link: FakeLink, body: Any) -> Any:
        reply = super().on_new_txn(link, body)
        txn_id = TxnID.from_wire(reply.txn_id)
        loop = asyncio.get_running_loop()
        loop.call_later(reply.txn_timeout_ms / 1000, self.abort_open, txn_id)
        return reply

    def abort_open(self, txn_id: TxnID) -> None:
        """Abort a transaction if it is open."""
        if self.transactions[txn_id]["status"] == common_pb2.OPEN:
            self.end(txn_id, commit=False)
            self.dispatch()


class Faults:
    """What becomes of commands: in some plays of all, in others of a few kinds.

    Args:
        rate: how many of them something happens to; drawn unless given.
    Attributes:
        are_on: whether anything goes wrong now.
    """

    def __init__(self, random: Random, rate: float | None = None) -> None:
        self.are_on = False
        self._random = random
        self._names = random.choice(((), *FAULTY))
        # Where everything goes wrong, nothing gets far.
        rates = (0.1, 0.3, 0.6) if self._names else (0.0, 0.02, 0.1, 0.25)
        self._rate = random.choice(rates) if rate is None else rate

    def reaction(self, name: str, body: Any) -> object:
        """Say what becomes of a command; the playbook asks."""
        if not self.are_on or (self._names and name not in self._names):
            return None
        if self._random.random() >= self._rate:
            return None
        if name in ("send", "add_partition_to_txn") and self._random.random() < 0.05:
            return QuotaExceeded()
        return self._random.choice(self._reactions(name))

    def _reactions(self, name: str) -> list[object]:
        if name == "flow":  # Nobody answers it.
            return [LOSE, None, None]
        reactions: list[object] = [DROP, LOSE, BREAK]
        if name != "hello":
            reactions.append(LogUnavailable())
        if name not in ("subscribe", "send"):  # Late copies of these would need a whole broker.
            reactions.append(HOLD)
        return reactions


class Chaos:
    """Breaks links, lets go of what is held, and aborts transactions, every now and then."""

    def __init__(self, cluster: ExpiringCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._mean_s = random.choice((0.01, 0.1, 1.0))

    async def go_on(self) -> None:
        """Do so until the task is cancelled."""
        deeds = (
            self._cluster.net.break_links,
            self._break_a_link,
            self._silence_a_link,
            self._cluster.play.release,
            self._abort_a_transaction,
        )
        while True:
            await time_passes(self._random.expovariate(1 / self._mean_s))
            (deed,) = self._random.choices(deeds, weights=(3, 4, 2, 4, 3))
            deed()

    def end(self) -> None:
        """Make the cluster well again."""
        for link in list(self._cluster.net.links):
            if link.half_open:
                link.break_now()
        self._cluster.play.release()

    def _break_a_link(self) -> None:
        if self._cluster.net.links:
            self._random.choice(self._cluster.net.links).break_now()

    def _silence_a_link(self) -> None:
        if self._cluster.net.links:
            self._random.choice(self._cluster.net.links).half_open = True

    def _abort_a_transaction(self) -> None:
        if self._cluster.transactions:
            self._cluster.abort_open(self._random.choice(list(self._cluster.transactions)[-3:]))
