"""History of one transaction: what its coordinator and the brokers of its participants know of it.

Brokers are asked at the same time, and each once. The parts of a broker that is away are marked as
missing: people look at a history when something does not work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from magnetar.admin.transaction_descriptions import TransactionDescription
from magnetar.enums import TransactionStatus
from magnetar.link.cluster import Cluster
from magnetar_core.errors import MagnetarError, code_name
from magnetar_core.errors import from_wire as error_from_wire
from magnetar_core.ids import PartitionName, SubscriptionName
from magnetar_core.wire import broker_pb2

# How long brokers are waited for: a person waits.
ANSWER_MS = 3_000
# How many brokers are asked at the same time, and about how many participants.
BROKERS_AT_ONCE = 16
PARTICIPANTS_AT_ONCE = 1_000

Participant: TypeAlias = PartitionName | SubscriptionName
# Answers about participants, or errors in their place.
_Told: TypeAlias = "dict[Participant, broker_pb2.ParticipantDescription | MagnetarError]"


@dataclass(frozen=True, slots=True)
class ParticipantHistory:
    """A participant's part of a transaction.

    Attributes:
        subscription: the subscription; None: the participant is the partition.
        status: what it is at the participant: OPEN, COMMITTED or ABORTED; None: its broker has
            forgotten it, or did not answer.
        confirmed: how many writes the client had confirmed when it committed: messages, and of a
            subscription commands with acks; None: it did not say.
        count: how many of them its broker knows.
        bytes: the bytes of the messages, as they are stored.
        counted_partly: whether there are more than count and bytes say.
        pending_ack_count: of a subscription, while the transaction is open: messages that are
            PENDING_ACK.
        first_write_at_ms: when the transaction first wrote or acknowledged there, in milliseconds
            since the Unix epoch; 0: not known.
        ended_at_ms: when it had ended it, in milliseconds since the Unix epoch; 0: it has not, or
            its coordinator does not know.
        last_error: why it has not ended it, as text for people; empty: no error came.
        unanswered: why its broker did not answer, as text for people; empty: it did.
        error: the same for programs.
    """

    partition: PartitionName
    subscription: str | None
    status: TransactionStatus | None
    confirmed: int | None
    count: int
    bytes: int
    counted_partly: bool
    pending_ack_count: int
    first_write_at_ms: int
    ended_at_ms: int
    last_error: str
    unanswered: str
    error: MagnetarError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TransactionHistory:
    """A transaction, and the parts of its participants.

    Attributes:
        participants: partitions first, in the order in which they joined. Empty: it had none, or
            `transaction.details_missing` says why they are not known.
    """

    transaction: TransactionDescription
    participants: tuple[ParticipantHistory, ...]

    @property
    def is_partial(self) -> bool:
        """Whether some brokers did not answer."""
        return any(one.unanswered for one in self.participants)


async def history_of(cluster: Cluster, described: TransactionDescription) -> TransactionHistory:
    """Ask the brokers of a transaction's participants for what they know."""
    participants: list[Participant] = [*described.partitions, *described.subscriptions]
    told = await _told(cluster, described, participants)
    ended = {(one.partition, one.subscription): one.ended_at_ms for one in described.ended}
    confirmed = {(one.partition, one.subscription): one.count for one in described.confirmed}
    errors = {(one.partition, one.subscription): one.last_error for one in described.unfinished}

    def part_of(participant: Participant) -> ParticipantHistory:
        key = _place_of(participant)
        found = told[participant]
        refusal: MagnetarError | None = None
        known = broker_pb2.ParticipantDescription()
        if isinstance(found, MagnetarError):
            refusal = found
        else:
            known = found
        return ParticipantHistory(
            *key,
            status=TransactionStatus(known.status) if known.status else None,
            confirmed=confirmed.get(key),
            count=known.count,
            bytes=known.bytes,
            counted_partly=known.counted_partly,
            pending_ack_count=known.pending_ack_count,
            first_write_at_ms=known.first_write_ms,
            ended_at_ms=ended.get(key, 0),
            last_error=errors.get(key, ""),
            unanswered="" if refusal is None else _text_of(refusal),
            error=refusal,
        )

    return TransactionHistory(described, tuple(part_of(one) for one in participants))


async def _told(
    cluster: Cluster, described: TransactionDescription, participants: Sequence[Participant]
) -> _Told:
    questions = asyncio.Semaphore(BROKERS_AT_ONCE)

    async def ask(address: str, some: Sequence[Participant]) -> _Told:
        command = broker_pb2.CommandDescribeParticipants(
            txn_id=described.txn_id.to_wire(),
            partitions=[one.to_wire() for one in some if isinstance(one, PartitionName)],
            subscriptions=[one.to_wire() for one in some if isinstance(one, SubscriptionName)],
        )
        async with questions:
            try:
                reply = await cluster.server_at(address).request(command, timeout_ms=ANSWER_MS)
            except MagnetarError as error:
                return dict.fromkeys(some, error)
        return dict(zip(some, map(_answer, reply.participants), strict=True))

    told, by_address = await _by_address(cluster, participants)
    portions = [(one, some) for one, every in by_address.items() for some in _portions(every)]
    asks = [ask(address, some) for address, some in portions]
    for found in await asyncio.gather(*asks):
        told.update(found)
    return told


async def _by_address(
    cluster: Cluster, participants: Iterable[Participant]
) -> tuple[_Told, dict[str, list[Participant]]]:
    """Divide participants by their brokers; those whose topic cannot be found have the error."""
    of_topics: dict[str, list[Participant]] = {}
    for one in participants:
        of_topics.setdefault(one.topic, []).append(one)
    lost: _Told = {}
    found: dict[str, list[Participant]] = {}
    for topic, some in of_topics.items():
        try:
            route = await cluster.route(topic)
            for one in some:
                route.require(one.partition)
            numbers = route.by_address({one.partition for one in some})
        except MagnetarError as error:
            lost.update(dict.fromkeys(some, error))
            continue
        addresses = {number: address for address, every in numbers.items() for number in every}
        for one in some:
            found.setdefault(addresses[one.partition], []).append(one)
    return lost, found


def _portions(participants: Sequence[Participant]) -> Iterator[Sequence[Participant]]:
    """Yield portions, in which partitions come first, as in answers."""
    ordered = sorted(participants, key=lambda one: isinstance(one, SubscriptionName))
    for start in range(0, len(ordered), PARTICIPANTS_AT_ONCE):
        yield ordered[start : start + PARTICIPANTS_AT_ONCE]


def _answer(
    told: broker_pb2.ParticipantDescription,
) -> broker_pb2.ParticipantDescription | MagnetarError:
    return error_from_wire(told.error) if told.HasField("error") else told


def _place_of(participant: Participant) -> tuple[PartitionName, str | None]:
    if isinstance(participant, SubscriptionName):
        return participant.partition_name, participant.subscription
    return participant, None


def _text_of(error: MagnetarError) -> str:
    return f"{code_name(error.to_wire().code)}: {error}"
