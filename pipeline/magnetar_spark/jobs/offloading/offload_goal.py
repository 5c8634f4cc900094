"""Compares what an offload has to do with what was done before."""

from __future__ import annotations

from dataclasses import dataclass, replace

from magnetar import blocking
from magnetar.admin.topic_descriptions import PartitionOffsets
from magnetar.enums import TransactionStatus
from magnetar_core.clock import SystemClock
from magnetar_core.errors import Gone, OutOfRange
from magnetar_spark.jobs.job_cuts import cut_at, later_than
from magnetar_spark.jobs.offloading.manifest import Manifest, OffloadPartition
from magnetar_spark.jobs.offloading.offload_log import OffloadError
from magnetar_spark.jobs.unfinished_transactions import unfinished_transactions
from magnetar_spark.sink import new_run_token

ROWS_PER_FILE = 1_000_000


@dataclass(frozen=True)
class Request:
    """Request to offload topics to a directory.

    Attributes:
        servers: the addresses of brokers, "host:port".
        rows_per_file: how many messages a file has at most.
        tasks_min: with how many tasks to write at least, each to a separate file.
        accept_loss: whether to leave out messages that retention has removed before they were
            offloaded, and messages that cannot be read.
        at: offload up to the ends of a cut: its token, or "now"; None: to the present ends.
    """

    servers: tuple[str, ...]
    topic: str
    directory: str
    rows_per_file: int = ROWS_PER_FILE
    compression: str = "zstd"
    tasks_min: int = 1
    accept_loss: bool = False
    at: str | None = None


@dataclass(frozen=True)
class Goal:
    """Goal of an offload; Manifest describes `unfinished`.

    Attributes:
        is_cut: whether the ends are those of a cut, which may be older than the directory.
    """

    cluster_id: str
    topic_id: int
    partitions: tuple[PartitionOffsets, ...]
    unfinished: tuple[str, ...]
    is_cut: bool = False

    def ends(self) -> dict[int, int]:
        """The end offset of each partition."""
        return {one.partition: one.end_offset for one in self.partitions}


def goal_of(client: blocking.Client, topic: str) -> Goal:
    """Return the present ends of the partitions, and the transactions that may cross them.

    These are the transactions that are being carried out when the ends are known, or were carried
    out before the ends are read again.
    """
    offsets = client.admin.topics.list_offsets(topic)
    unfinished: set[str] = set()
    if len(offsets.partitions) > 1:
        for one in unfinished_transactions(client, [TransactionStatus.COMMITTING]):
            if any(place.topic_id == offsets.topic_id for place in one.partitions):
                unfinished.add(str(one.txn_id))
        ends = {one.partition: one.end_offset for one in offsets.partitions}
        try:
            later = client.admin.topics.list_offsets(
                topic, partitions=ends, topic_id=offsets.topic_id
            )
            for place in later.partitions:
                read = client.read_columns(
                    topic, place.partition, ends[place.partition], place.end_offset
                )
                unfinished |= {str(columns.txn_id) for columns in read if columns.txn_id}
        except (OutOfRange, Gone) as error:
            raise OffloadError(f"{topic!r} changed while it was looked at: {error}") from error
    return Goal(
        client.admin.cluster_info().cluster_id,
        offsets.topic_id,
        tuple(sorted(offsets.partitions, key=lambda one: one.partition)),
        tuple(sorted(unfinished)),
    )


def goal_at(client: blocking.Client, topic: str, at: str) -> Goal:
    """Return the ends of a cut, and the transactions before them that are not in it.

    Those that are in it lie before the ends as a whole.

    Raises:
        JobError: as cut_at and later_than.
    """
    cut = cut_at(client, at, [topic])
    taken = cut.taken.topic(topic)
    return Goal(
        client.admin.cluster_info().cluster_id,
        taken.topic_id,
        tuple(
            PartitionOffsets(number, one.ledger_id, one.first_offset, one.end_offset)
            for number, one in enumerate(taken.partitions)
        ),
        tuple(sorted(later_than(client, cut, [topic]))),
        is_cut=True,
    )


def continued(before: Manifest | None, goal: Goal, request: Request, run: str) -> Manifest:
    """Return the manifest to continue from: that of the directory, or a new manifest.

    Raises:
        OffloadError: the directory belongs to another topic, or offsets are lost.
    """
    now_ms = SystemClock().wall_ms()
    if before is None:
        return Manifest(
            *(1, new_run_token(), run, goal.cluster_id, request.topic, goal.topic_id),
            *(now_ms, 0, (), _anew(goal)),
        )
    _check_same_topic(before, goal, request)
    if not before.settled_at_ms and not any(one.files for one in before.partitions):
        # The first run has written nothing, so nothing is lost.
        return replace(
            before,
            number=before.number + 1,
            run=run,
            written_at_ms=now_ms,
            partitions=_anew(goal),
        )
    known = {one.partition: one for one in before.partitions}
    if goal.is_cut:
        _check_not_beyond(before, goal, request)
    # A partition that was not there then is new from its first message on.
    partitions = tuple(
        _behind_losses(
            known.get(one.partition, OffloadPartition(one.partition, one.ledger_id, 0, 0, 0)),
            one,
            request,
        )
        for one in goal.partitions
    )
    return replace(
        before, number=before.number + 1, run=run, written_at_ms=now_ms, partitions=partitions
    )


def _check_not_beyond(before: Manifest, goal: Goal, request: Request) -> None:
    ends = goal.ends()
    for one in before.partitions:
        if one.end_offset > ends.get(one.partition, 0):
            raise OffloadError(
                f"{request.directory} has partition {one.partition} up to {one.end_offset} already,"
                f" and the cut ends at {ends.get(one.partition, 0)}: take a later cut, or choose"
                " another directory"
            )


def _anew(goal: Goal) -> tuple[OffloadPartition, ...]:
    return tuple(
        OffloadPartition(
            one.partition, one.ledger_id, one.first_offset, one.first_offset, one.first_offset
        )
        for one in goal.partitions
    )


def _check_same_topic(before: Manifest, goal: Goal, request: Request) -> None:
    if before.topic != request.topic:
        raise OffloadError(
            f"{request.directory} is an offload of topic {before.topic!r}: choose another directory"
        )
    # The id may be empty: a server without a list of members has none.
    if before.cluster_id and before.cluster_id != goal.cluster_id:
        raise OffloadError(
            f"{request.directory} is an offload of a topic of cluster {before.cluster_id!r}, and"
            f" this is {goal.cluster_id!r}: choose another directory"
        )
    if before.topic_id != goal.topic_id:
        raise OffloadError(
            f"topic {request.topic!r} was deleted and made anew (its id is {goal.topic_id}, and"
            f" was {before.topic_id}): choose another directory for the new one"
        )


def _behind_losses(
    known: OffloadPartition, found: PartitionOffsets, request: Request
) -> OffloadPartition:
    what = f"{request.topic} partition {found.partition}"
    if known.ledger_id != found.ledger_id or found.end_offset < known.end_offset:
        raise OffloadError(
            f"{what} was restored, or has lost its end: it ends at {found.end_offset}, ledger"
            f" {found.ledger_id}, and was offloaded up to {known.end_offset}, ledger"
            f" {known.ledger_id}. Its offsets may be others now: choose another directory"
        )
    if found.first_offset <= known.end_offset:
        return known
    if not request.accept_loss:
        raise OffloadError(
            f"{what}: the messages from {known.end_offset} to {found.first_offset - 1} are gone"
            " before they were offloaded: --accept-loss continues after them, and notes that in "
            "the manifest"
        )
    return replace(
        known,
        end_offset=found.first_offset,
        losses=(*known.losses, (known.end_offset, found.first_offset)),
    )
