"""The transaction of ours that a producer of Kafka works in, as the coordinator has it.

A client of Kafka names its transactional id and its pair, a producer id with an epoch; ours are
named by TxnIDs. What is known of an id here only saves questions: it is forgotten at any doubt, and
after a restart the coordinator is asked. Every command names the TxnID that it is for, or the one
that it follows, so that a late copy of it never reaches another transaction.
Source: docs/design/0028-kafka-transactions.md.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from magnetar_core.cuts.hybrid_clock import NO_STAMP
from magnetar_core.errors import InvalidTxnState, ProducerFenced
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_kafka.coordinators import Coordinators
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.nodes import Nodes
from magnetar_kafka.transactions.transaction_codes import ended_otherwise

# Transactional ids of which something is remembered, to save questions.
KNOWN_MAX = 10_000

ResultT = TypeVar("ResultT")


class Pair(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


NO_PAIR = Pair(-1, -1)


@dataclass(slots=True)
class Known:
    """State of a transactional id, as the coordinator told it last.

    Attributes:
        pair: the pair that may act.
        latest: its latest transaction; None: it has had none.
        is_open: whether that is open.
        is_prepared: whether an instance has taken it over to end it: it takes nothing more.
        is_two_phase: whether a database decides its outcome, at any time.
        participants: of that transaction, while it is open.
        is_stale: the coordinator has to be asked again.
        lock: held by the request that is under way; others of the id wait.
    """

    pair: Pair = NO_PAIR
    latest: TxnID | None = None
    is_open: bool = False
    is_prepared: bool = False
    is_two_phase: bool = False
    participants: set[PartitionName | SubscriptionName] = field(default_factory=set)
    is_stale: bool = True
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Transactions:
    """Transactions of Kafka's clients.

    Args:
        ledger_id_of: returns the ledger id that a partition has now; 0: it is not known here. The
            coordinator keeps it with the participant: if it rises before the commit, messages may
            be lost, which no one has counted.
        nodes: the brokers of the cluster. What is known of an id is at one process: another would
            write into a transaction that has ended meanwhile.
    """

    def __init__(
        self,
        coordinators: Coordinators,
        ledger_id_of: Callable[[PartitionName], int],
        nodes: Nodes,
    ) -> None:
        self.coordinators = coordinators
        self._nodes = nodes
        self._ledger_id_of = ledger_id_of
        # The highest stamp of a commit that Kafka's clients may have read here.
        self._seen_stamp = NO_STAMP
        self._known: OrderedDict[str, Known] = OrderedDict()

    def saw(self, stamp: int) -> None:
        """Note a stamp of a commit that a client of Kafka has read, or acknowledged.

        What it commits from now on is stamped later than that (docs/design/0015-cuts.md).
        """
        self._seen_stamp = max(self._seen_stamp, stamp)

    def check_possible(self) -> None:
        """Check that there can be transactions.

        Raises:
            Refused: there are several broker processes, or coordinators that move.
        """
        self._nodes.check_alone("transactions")
        if not self.coordinators.tcids:
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "transactions of Kafka's clients need a cluster with a list of members",
            )

    # Beginning, and adding.

    async def add(
        self,
        transactional_id: str,
        pair: Pair,
        partitions: Iterable[PartitionName] = (),
        subscriptions: Iterable[SubscriptionName] = (),
        *,
        begins: bool = True,
    ) -> TxnID:
        """Return the open transaction of a producer; its coordinator has these participants.

        Args:
            begins: whether it begins if none is open.
        Raises:
            ProducerFenced: another instance has taken the id over.
            InvalidTxnState: the producer's transaction has ended otherwise, and the details have
                another pair; or it is prepared; or none is open.
            TransactionalIdNotFound: the id was not initialised, or is forgotten.
            ConcurrentTransactions: the transaction before it is still ending.
            MagnetarError: as Coordinators.ask.
        """
        parts, subs = list(partitions), list(subscriptions)

        async def work(known: Known) -> TxnID:
            await self._check_pair(transactional_id, pair, known)
            if not known.is_open or known.latest is None:
                if not begins:
                    raise InvalidTxnState(f"{transactional_id!r} has no open transaction")
                return await self._begin(transactional_id, pair, known, parts, subs)
            _check_takes_more(transactional_id, known)
            await self._add(transactional_id, pair, known, parts, subs)
            return known.latest

        return await self._with(transactional_id, work)

    def is_two_phase(self, transactional_id: str) -> bool:
        """Return whether a producer commits in two phases; add() has returned its transaction."""
        known = self._known.get(transactional_id)
        return known is not None and known.is_two_phase

    async def open_txn(
        self, transactional_id: str, pair: Pair, partitions: Iterable[PartitionName]
    ) -> tuple[TxnID | None, set[PartitionName]]:
        """Return the open transaction of a producer, and which partitions it was not told of.

        Returns:
            None instead of a transaction, if none is open.
        Raises:
            MagnetarError: as add().
        """

        async def work(known: Known) -> tuple[TxnID | None, set[PartitionName]]:
            await self._check_pair(transactional_id, pair, known)
            missing = {one for one in partitions if one not in known.participants}
            if missing or not known.is_open:
                # Another server may have added them.
                await self._refresh(transactional_id, known)
                await self._check_pair(transactional_id, pair, known)
                missing = {one for one in partitions if one not in known.participants}
            _check_takes_more(transactional_id, known)
            return (known.latest if known.is_open else None), missing

        return await self._with(transactional_id, work)

    # Ending.

    async def end(
        self, transactional_id: str, pair: Pair, *, is_commit: bool, keep_epoch: bool
    ) -> Pair:
        """End the transaction of a producer; return the pair that it has from now on.

        Args:
            keep_epoch: the producer keeps its pair.
        Raises:
            InvalidTxnState: also: the other outcome is fixed, or there is nothing to end.
            MagnetarError: as add().
        """

        async def work(known: Known) -> Pair:
            identity = _identity(transactional_id, pair)
            command = pb.CommandEndTxn(
                txn_action=common.COMMIT if is_commit else common.ABORT,
                identity=identity,
                keep_epoch=keep_epoch,
                seen_stamp=self._seen_stamp,
            )
            if known.latest is not None:
                command.txn_id.CopyFrom(known.latest.to_wire())
            answer = await self.coordinators.ask(transactional_id, command)
            known.pair = Pair(answer.identity.producer_id, answer.identity.producer_epoch)
            known.is_open = known.is_prepared = False
            known.participants.clear()
            return known.pair

        return await self._with(transactional_id, work)

    async def initialise(
        self, transactional_id: str, command: pb.CommandInitProducer
    ) -> pb.CommandInitProducerResponse:
        """Take a transactional id over.

        Raises:
            Refused: as check_possible().
            MagnetarError: as Coordinators.ask; what the coordinator refuses.
        """
        self.check_possible()
        answer: pb.CommandInitProducerResponse = await self.coordinators.ask(
            transactional_id, command
        )
        self._known.pop(transactional_id, None)
        return answer

    def forget(self, transactional_id: str) -> None:
        """Ask the coordinator before the next use: what is known here may be wrong."""
        known = self._known.get(transactional_id)
        if known is not None:
            known.is_stale = True

    # Inside.

    async def _with(
        self, transactional_id: str, work: Callable[[Known], Awaitable[ResultT]]
    ) -> ResultT:
        """Do something with what is known of an id; once more if that was out of date.

        Raises:
            Refused: as check_possible().
        """
        self.check_possible()
        known = self._known.get(transactional_id)
        if known is None:
            known = self._known[transactional_id] = Known()
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(transactional_id)
        async with known.lock:
            is_as_told = known.is_stale
            try:
                if known.is_stale:
                    await self._refresh(transactional_id, known)
                try:
                    return await work(known)
                except InvalidTxnState as error:
                    if is_as_told or ended_otherwise(error):
                        raise
                    # It rests on what is known here.
                    await self._refresh(transactional_id, known)
                    return await work(known)
            except BaseException:
                known.is_stale = True
                raise

    async def _refresh(self, transactional_id: str, known: Known) -> None:
        answer = await self.coordinators.ask(
            transactional_id, pb.CommandDescribeTransactionalId(transactional_id=transactional_id)
        )
        found = answer.description
        has_next = found.next_producer_id >= 0
        known.pair = (
            Pair(found.next_producer_id, found.next_producer_epoch)
            if has_next
            else Pair(found.producer_id, found.producer_epoch)
        )
        known.latest = TxnID.from_wire(found.txn_id) if found.HasField("txn_id") else None
        known.is_open = found.state == pb.ONGOING
        known.is_prepared = known.is_open and has_next
        known.is_two_phase = found.two_phase_commit
        known.participants.clear()
        if known.is_open and known.latest is not None:
            described = await self.coordinators.ask(
                transactional_id, pb.CommandDescribeTxn(txn_id=known.latest.to_wire())
            )
            transaction = described.transaction
            known.participants.update(map(PartitionName.from_wire, transaction.partitions))
            known.participants.update(map(SubscriptionName.from_wire, transaction.subscriptions))
        known.is_stale = False

    async def _check_pair(self, transactional_id: str, pair: Pair, known: Known) -> None:
        """Let the coordinator say why a producer's pair is not the newest, if it is not."""
        if pair == known.pair:
            return
        if known.latest is not None:
            await self.coordinators.ask(
                transactional_id,
                pb.CommandAddPartitionToTxn(
                    txn_id=known.latest.to_wire(), identity=_identity(transactional_id, pair)
                ),
            )
            await self._refresh(transactional_id, known)
            if pair == known.pair:
                return
        raise ProducerFenced(
            f"{transactional_id!r} has producer id {known.pair.producer_id} and epoch"
            f" {known.pair.epoch}, and not {pair.producer_id} and {pair.epoch}",
            transactional_id=transactional_id,
        )

    async def _begin(
        self,
        transactional_id: str,
        pair: Pair,
        known: Known,
        partitions: list[PartitionName],
        subscriptions: list[SubscriptionName],
    ) -> TxnID:
        command = pb.CommandNewTxn(
            identity=_identity(transactional_id, pair),
            partitions=[one.to_wire() for one in partitions],
            subscriptions=[one.to_wire() for one in subscriptions],
            follows_given=True,
            ledger_ids=self._ledger_ids(partitions, subscriptions),
            seen_stamp=self._seen_stamp,
        )
        if known.latest is not None:
            command.follows_txn_id.CopyFrom(known.latest.to_wire())
        answer = await self.coordinators.ask(transactional_id, command)
        begun = known.latest = TxnID.from_wire(answer.txn_id)
        known.is_open = True
        known.participants = {*partitions, *subscriptions}
        return begun

    async def _add(
        self,
        transactional_id: str,
        pair: Pair,
        known: Known,
        partitions: list[PartitionName],
        subscriptions: list[SubscriptionName],
    ) -> None:
        assert known.latest is not None
        identity, txn_id = _identity(transactional_id, pair), known.latest.to_wire()
        new_partitions = [one for one in partitions if one not in known.participants]
        new_subscriptions = [one for one in subscriptions if one not in known.participants]
        commands: list[Any] = []
        if new_partitions:
            commands.append(
                pb.CommandAddPartitionToTxn(
                    txn_id=txn_id,
                    partitions=[one.to_wire() for one in new_partitions],
                    ledger_ids=self._ledger_ids(new_partitions, ()),
                    identity=identity,
                )
            )
        if new_subscriptions:
            commands.append(
                pb.CommandAddSubscriptionToTxn(
                    txn_id=txn_id,
                    subscriptions=[one.to_wire() for one in new_subscriptions],
                    ledger_ids=self._ledger_ids((), new_subscriptions),
                    identity=identity,
                    seen_stamp=self._seen_stamp,
                )
            )
        for command in commands:
            await self.coordinators.ask(transactional_id, command)
        known.participants.update(new_partitions)
        known.participants.update(new_subscriptions)

    def _ledger_ids(
        self, partitions: Iterable[PartitionName], subscriptions: Iterable[SubscriptionName]
    ) -> list[int]:
        names = [*partitions, *(one.partition_name for one in subscriptions)]
        return [self._ledger_id_of(one) for one in names]


def _check_takes_more(transactional_id: str, known: Known) -> None:
    if known.is_prepared:
        raise InvalidTxnState(
            f"the transaction of {transactional_id!r} is prepared: commit or abort it first"
        )


def _identity(transactional_id: str, pair: Pair) -> common.ProducerIdentity:
    return common.ProducerIdentity(
        transactional_id=transactional_id,
        producer_id=pair.producer_id,
        producer_epoch=pair.epoch,
    )
