"""Subscriptions of a partition, by name: existing ones, and the ends kept for others.

A transaction may end at a subscription that does not exist: it was deleted, or never created. The
end is still kept until the coordinator's watermark covers it, so that a subscription created later
under that name refuses the transaction's late acks (docs/protocol/rules.md, rule d).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from magnetar_broker import keys
from magnetar_broker.dispatch.acknowledgements import Acknowledgements
from magnetar_broker.environment import Environment
from magnetar_broker.log.log_reader import LogReader
from magnetar_broker.log.partition_log import PartitionLog
from magnetar_broker.subscriptions.committing import Committing
from magnetar_broker.subscriptions.delivery import Delivery
from magnetar_broker.subscriptions.group_ownership import GroupOwnership
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_broker.transactions import index_rows
from magnetar_broker.transactions.transaction_index import End, TransactionIndex
from magnetar_core.errors import (
    Gone,
    InvalidArgument,
    LogUnavailable,
    QuotaExceeded,
    SubscriptionNotFound,
)
from magnetar_core.history.events import ParticipantCreated, ParticipantDeleted
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import record_pb2 as records
from magnetar_storage.store import end_of_prefix

NAME_CHARACTERS_MAX = 200
# How many deleted subscriptions' consumers are remembered.
DELETED_KNOWN_MAX = 16


def is_subscription_name(name: str) -> bool:
    """Return whether a text can be the name of a subscription."""
    return 0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable()


@dataclass(slots=True)
class Absent:
    """A subscription that does not exist; its index has ended transactions only.

    Attributes:
        generation: the highest one of a Kafka group of its name that has come here; 0: none has.
    """

    subscription_id: int
    index: TransactionIndex
    generation: int = 0


class Subscriptions:
    """Subscriptions of a partition. Iterating yields existing ones.

    Args:
        take_id: returns a new subscription id that was never used.
    """

    def __init__(
        self,
        environment: Environment,
        partition: PartitionName,
        partition_log: PartitionLog,
        reader: LogReader,
        take_id: Callable[[], int],
    ) -> None:
        self._environment = environment
        self._partition = partition
        self._log = partition_log
        self._reader = reader
        self._take_id = take_id
        self._existing: dict[str, Subscription] = {}
        self._absent: dict[str, Absent] = {}
        # Deliveries of deleted subscriptions, so that late copies of their consumers are
        # recognised.
        self._deleted: dict[str, Delivery] = {}
        # Why subscriptions may not come and go now; empty: they may.
        self.sealed = ""

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._existing.values())

    def absent(self) -> Iterable[Absent]:
        """Return subscriptions that do not exist, of which ends are kept."""
        return self._absent.values()

    def find(self, name: str) -> Subscription | None:
        """Return a subscription, or None."""
        return self._existing.get(name)

    def get(self, name: str) -> Subscription:
        """Return a subscription.

        Raises:
            SubscriptionNotFound: it does not exist.
        """
        found = self._existing.get(name)
        if found is None:
            raise SubscriptionNotFound(
                f"{self._partition} has no subscription {name!r}: subscribe first"
            )
        return found

    def create(self, name: str, offset: int) -> Subscription:
        """Create a subscription whose cursor begins at an offset.

        Raises:
            InvalidArgument: the name is not allowed.
            QuotaExceeded: too many subscriptions.
            LogUnavailable: as refuse_sealed.
        """
        self._check_name(name)
        self.check_room()
        return self.carry(name, offset)

    def carry(self, name: str, offset: int) -> Subscription:
        """Create a subscription of other partitions here, too: it is allowed already."""
        absent = self._absent.pop(name, None) or self._new_absent(name)
        created = self.restore(name, absent.subscription_id, Acknowledgements(offset), absent.index)
        created.committing.generation = absent.generation
        self._put_record(name, created.subscription_id, absent=False)
        deleted = self._deleted.pop(name, None)
        if deleted is not None:
            created.delivery.inherit_epochs(deleted)
        created.cursor.mark_new()
        self._environment.defer_rows(created)
        if self._environment.history is not None:
            self._environment.history.note(ParticipantCreated(created.name, offset))
        return created

    def refuse_late(self, name: str, consumer_id: int, attach_epoch: int) -> None:
        """Refuse a late copy of a subscribe from before the subscription was deleted.

        Raises:
            InvalidArgument: the consumer was attached to the deleted subscription.
        """
        deleted = self._deleted.get(name)
        if deleted is not None:
            deleted.refuse_late(consumer_id, attach_epoch)

    def check_room(self) -> None:
        """Check that another subscription is allowed.

        Raises:
            QuotaExceeded: too many subscriptions.
            LogUnavailable: as refuse_sealed.
        """
        self.refuse_sealed()
        limit = self._environment.config.subscriptions_max
        if len(self._existing) >= limit:
            raise QuotaExceeded(
                f"{self._partition} has its {limit} subscriptions: delete some, or raise"
                " subscriptions_max",
                subscriptions_max=limit,
            )

    def refuse_sealed(self) -> None:
        """Check that subscriptions may come and go.

        Raises:
            LogUnavailable: the topic is being given partitions, which get the subscriptions that it
                has.
        """
        if self.sealed:
            raise LogUnavailable(self.sealed)

    def restore(
        self,
        name: str,
        subscription_id: int,
        cursor: Acknowledgements,
        index: TransactionIndex | None = None,
    ) -> Subscription:
        """Restore a subscription that has rows."""
        full_name = self._name_of(name)
        restored = Subscription(
            self._environment,
            full_name,
            subscription_id,
            cursor,
            index or self._environment.new_index(full_name),
            self._log,
            self._reader,
        )
        self._existing[name] = restored
        return restored

    def claim(self, name: str, group_ownership: GroupOwnership) -> None:
        """Let an existing subscription belong to a group, or to another owner in it."""
        claimed = self._existing[name]
        claimed.claim(group_ownership)
        self._put_record(name, claimed.subscription_id, absent=False)

    def restore_absent(self, name: str, subscription_id: int, generation: int = 0) -> Absent:
        """Restore an absent subscription, of which only ends and a generation are left."""
        index = self._environment.new_index(self._name_of(name))
        restored = Absent(subscription_id, index, generation)
        self._absent[name] = restored
        return restored

    def delete(self, name: str) -> None:
        """Delete a subscription.

        Raises:
            SubscriptionNotFound: it does not exist.
            ResourceInUse: acks are pending, or its group has members.
            LogUnavailable: as refuse_sealed.
        """
        self.refuse_sealed()
        doomed = self.get(name)
        if doomed.group_ownership is not None:
            doomed.group_ownership.refuse_deletion()
        doomed.refuse_deletion()
        del self._existing[name]
        self._deleted[name] = doomed.delivery
        if len(self._deleted) > DELETED_KNOWN_MAX:
            del self._deleted[next(iter(self._deleted))]
        self._remove_acknowledgements(doomed)
        if self._environment.history is not None:
            self._environment.history.note(ParticipantDeleted(doomed.name))
        generation = doomed.committing.generation
        if doomed.index.ended or generation:
            self._absent[name] = Absent(doomed.subscription_id, doomed.index, generation)
            self._put_record(name, doomed.subscription_id, absent=True)
        else:
            self._delete_record(doomed.subscription_id)

    # Kafka groups

    def generation(self, name: str) -> int:
        """Return the highest generation of a Kafka group that has come here; 0: none has."""
        return self._committing(name).generation

    def note_generation(self, name: str, generation: int) -> None:
        """Refuse all generations of a Kafka group before this one from now on.

        No subscription is made.

        Raises:
            IllegalGeneration: a later one has come here.
            InvalidArgument: as create().
            QuotaExceeded: too many names of groups have come here.
        """
        self._committing(name).check(generation)
        subscription = self._existing.get(name)
        if subscription is not None:
            subscription.note_generation(generation)
            return
        absent = self._absent.get(name)
        if absent is None:
            self._check_name(name)
            self._check_groups()
            absent = self._absent[name] = self._new_absent(name)
        if generation > absent.generation:
            absent.generation = generation
            self._put_record(name, absent.subscription_id, absent=True)

    def for_commit(self, name: str, generation: int) -> Subscription:
        """Return the subscription for a commit of a Kafka group's generation; made if it is absent.

        Raises:
            IllegalGeneration: a later generation has come here.
            InvalidArgument: as create().
            QuotaExceeded: as create().
            LogUnavailable: as create().
        """
        self._committing(name).check(generation)
        found = self._existing.get(name)
        if found is None:
            found = self.create(name, self._log.first_offset)
            found.committing.made_by_commit = True
        found.note_generation(generation)
        return found

    def forget_group(self, name: str, *, expired: bool = False) -> None:
        """Forget the commits of a Kafka group, and its generations.

        Args:
            expired: only if nothing else uses the subscription.
        Raises:
            ResourceInUse: as delete().
            LogUnavailable: as delete().
        """
        found = self._existing.get(name)
        if found is not None and (found.committing.made_by_commit or not expired):
            self.delete(name)
        elif found is not None:
            found.forget_group()
        absent = self._absent.get(name)
        if absent is not None and absent.generation:
            absent.generation = 0
            self._put_record(name, absent.subscription_id, absent=True)
            self._drop_if_empty(name, absent)

    def _committing(self, name: str) -> Committing:
        found = self._existing.get(name)
        if found is not None:
            return found.committing
        absent = self._absent.get(name)
        return Committing(absent.generation if absent is not None else 0)

    def _check_groups(self) -> None:
        limit = self._environment.config.subscriptions_max
        if sum(one.generation > 0 for one in self._absent.values()) >= limit:
            raise QuotaExceeded(
                f"{limit} groups without an offset have come to {self._partition}: delete some, or"
                " raise subscriptions_max",
                subscriptions_max=limit,
            )

    # Ends of transactions

    def end(self, name: str, end: End) -> None:
        """End a transaction, as CommandEndTxnOnSubscription asks.

        Raises:
            Gone: the subscription does not exist; the end is recorded.
            InvalidTxnState: as Subscription.end.
            TxnIncomplete: as Subscription.end.
        """
        subscription = self._existing.get(name)
        if subscription is not None:
            subscription.end(end)
            return
        self._end_absent(name, end)
        raise Gone(f"{self._partition} has no subscription {name!r}")

    def _end_absent(self, name: str, end: End) -> None:
        """Record an end without checking counts: the acks are gone with the subscription."""
        if self._environment.watermarks.covers(end.txn_id) or not is_subscription_name(name):
            return
        absent = self._absent.get(name)
        if absent is None:
            absent = self._absent[name] = self._new_absent(name)
            self._put_record(name, absent.subscription_id, absent=True)
        if end.txn_id in absent.index.ended:
            return
        index_rows.put_ended(
            self._environment.commits.batch,
            self._index_key(end.txn_id, absent.subscription_id),
            absent.index.record_end(end),
            None,
            marker_entry_id=None,
        )

    def forget_covered(self) -> None:
        """Drop from every index the transactions that watermarks cover."""
        for subscription in self._existing.values():
            self._forget_covered(subscription.index, subscription.subscription_id)
        for name, absent in list(self._absent.items()):
            self._forget_covered(absent.index, absent.subscription_id)
            self._drop_if_empty(name, absent)

    def delete_all(self) -> None:
        """Delete every row of all subscriptions: the partition is being deleted.

        What is open is aborted.
        """
        for subscription in self._existing.values():
            for txn_id in list(subscription.index.open):
                subscription.end(End.dropping(txn_id))
            self._remove_acknowledgements(subscription)
            self._delete_ends(subscription.index, subscription.subscription_id)
            self._delete_record(subscription.subscription_id)
        for absent in self._absent.values():
            self._delete_ends(absent.index, absent.subscription_id)
            self._delete_record(absent.subscription_id)
        self._existing.clear()
        self._absent.clear()

    def _check_name(self, name: str) -> None:
        if not is_subscription_name(name):
            raise InvalidArgument(
                f"{name!r} is not a subscription name: 1 to {NAME_CHARACTERS_MAX} printable "
                "characters"
            )

    def _new_absent(self, name: str) -> Absent:
        return Absent(self._take_id(), self._environment.new_index(self._name_of(name)))

    def _name_of(self, name: str) -> SubscriptionName:
        return SubscriptionName(*self._partition, name)

    def _remove_acknowledgements(self, subscription: Subscription) -> None:
        subscription.close()
        batch = self._environment.commits.batch
        prefix = self._key(subscription.subscription_id)
        end = end_of_prefix(prefix)
        batch.delete_range(keys.CURSORS, prefix, end)
        batch.delete_range(keys.PENDINGACKS, prefix, end)

    def _forget_covered(self, index: TransactionIndex, subscription_id: int) -> None:
        batch = self._environment.commits.batch
        for txn_id in index.forget_covered():
            batch.delete(keys.TXNINDEX, self._index_key(txn_id, subscription_id))

    def _delete_ends(self, index: TransactionIndex, subscription_id: int) -> None:
        batch = self._environment.commits.batch
        for txn_id in index.ended:
            batch.delete(keys.TXNINDEX, self._index_key(txn_id, subscription_id))

    def _put_record(self, name: str, subscription_id: int, *, absent: bool) -> None:
        existing = self._existing.get(name)
        if existing is not None and not absent:
            record = existing.record()
        else:
            record = records.SubscriptionRecord(
                subscription_id=subscription_id,
                topic_id=self._partition.topic_id,
                partition=self._partition.partition,
                subscription=name,
                absent=True,
                group_generation=self._absent[name].generation,
            )
        self._environment.commits.batch.put(
            keys.SUBSCRIPTIONS, self._key(subscription_id), record.SerializeToString()
        )

    def _drop_if_empty(self, name: str, absent: Absent) -> None:
        if not absent.index.ended and not absent.generation:
            del self._absent[name]
            self._delete_record(absent.subscription_id)

    def _delete_record(self, subscription_id: int) -> None:
        self._environment.commits.batch.delete(keys.SUBSCRIPTIONS, self._key(subscription_id))

    def _key(self, subscription_id: int) -> bytes:
        return keys.in_partition(
            self._partition.topic_id, self._partition.partition, subscription_id
        )

    def _index_key(self, txn_id: TxnID, subscription_id: int) -> bytes:
        return keys.txnindex(
            txn_id, self._partition.topic_id, self._partition.partition, subscription_id
        )
