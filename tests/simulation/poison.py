"""Exceptions in the middle of a run: some of its commands fail, as if their handler had a mistake.

Each strikes when a function of a server is called, before it has done anything. What it strikes has
no effect, and the commands before it and behind it go on; or the process ends, if memory and rows
may differ by then.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

from tests.simulation.planting import replaced

from magnetar.testing.envelope import singles
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import CommandSession
from magnetar_core.wire import service_pb2 as pb

# Commands that say this in place of their span may fail, and the ends at participants of the
# transactions that these commands end; no others.
MARK = b"poison"
# How many calls of these functions fail.
SHARE = 0.04
POINTS = (
    "magnetar_coordinator.runtime:Runtime.hear",
    "magnetar_coordinator.runtime:Runtime.carry_out",
    "magnetar_coordinator.transactions.session_quota:SessionQuota.check",
    "magnetar_coordinator.transactions.shard:Shard.new_txn",
    "magnetar_coordinator.transactions.shard:Shard.end",
    # From here on the process ends.
    "magnetar_coordinator.metadata_store:TransactionMetadataStore.append",
    "magnetar_coordinator.transactions.shard:Shard.apply",
    "magnetar_coordinator.transactions.session_quota:SessionQuota.fixed",
    "magnetar_broker.topics.topics:Topics.named",
    "magnetar_broker.topics.partition:Partition.send",
    "magnetar_broker.topics.partition:Partition.send_in",
    "magnetar_broker.subscriptions.subscription:Subscription.acknowledge_in",
    "magnetar_broker.coordinators.transaction_commands:TransactionCommands._check_end",
    "magnetar_broker.topics.partition:Partition.end",
    "magnetar_broker.subscriptions.subscriptions:Subscriptions.end",
)


class Poisoned(Exception):
    """A handler failed, since a test wants it."""


@contextmanager
def poison(random: Random) -> Iterator[None]:
    """Let commands of poisoned runs fail, for a while."""
    is_active = False
    ended: set[TxnID] = set()
    handle = CommandSession.handle

    def may_fail(one: pb.Command) -> bool:
        if one.traceparent == MARK:
            if one.HasField("end_txn"):
                ended.add(TxnID.from_wire(one.end_txn.txn_id))
            return True
        return (
            one.HasField("end_txn_on_participants")
            and TxnID.from_wire(one.end_txn_on_participants.txn_id) in ended
        )

    def handled(session: CommandSession, requests: Sequence[pb.Command], start: int = 0) -> int:
        nonlocal is_active
        frame = singles(pb.Frame(commands=requests))
        is_active = any([may_fail(one) for one in frame.commands])
        try:
            return handle(session, requests, start)
        finally:
            is_active = False

    def poisoned(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if is_active and random.random() < SHARE:
                raise Poisoned(function.__qualname__)
            return function(*arguments, **named)

        return call

    with ExitStack() as stack:
        stack.enter_context(replaced(CommandSession, "handle", handled))
        for point in POINTS:
            module, _, path = point.partition(":")
            owner_name, name = path.split(".")
            owner = getattr(importlib.import_module(module), owner_name)
            stack.enter_context(replaced(owner, name, poisoned(getattr(owner, name))))
        yield
