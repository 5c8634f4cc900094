"""The rows of the comparison: what each of them means, for all systems.

Servers and clients share one machine and talk over loopback. Topics have 8 partitions where nothing
else is said, and values are zeros, uncompressed. Time runs until everything is acknowledged
(produced), or has been received and its position is stored (consumed).

- **transactions**: each writes 1 KiB to each of 2 of the 8 partitions, acknowledges one input
  (Kafka: sendOffsetsToTransaction), and commits; a worker begins its next one when the last one is
  committed. The input was received before. Kafka's workers have a producer and a group each.
  commit() does not include Kafka's waiting in sendOffsetsToTransaction: compare rates.
- **produce**: messages of 100 B and 1 KiB by a call that takes many, and by a call for each.
- **consume**: the same messages, read from the beginning by calls that give many or one, and
  acknowledged: together, or each (Kafka stores positions, which is together).
- **commits**: produce in transactions that are committed every 100 ms.
- **hanging**: single messages, 20 ms apart, each confirmed, and their way to a reader of what is
  committed; without and with a transaction that has written to all partitions and stays open for
  the whole round. The longer it hangs, the longer those wait who have to.
- **transform**: 100 B read, written to another topic and acknowledged, in a transaction for each
  up to 1,000 messages.
- **tailing**: 100 B at a fixed rate, from send to receive, with 1 ms of linger.
- **growth**: messages of 100 B, to 1 to 1,000 partitions in turn; what a message costs there.
- **restart**: the server is killed with SIGKILL after so many messages and started again; from the
  kill to the confirmation of the first message that was sent after it.

Each row also tells the processor time (user and system) of all servers and of the client for a
million messages or transactions, and the most memory that the servers had resident meanwhile. Each
counts what arrived by the partitions' offsets, less the markers of transactions (Pulsar: by the
counters of messages, since its entries are batches).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.peers.plan import Plan

PARTITIONS = 8
SIZES = (100, 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A piece of work for one client program.

    Attributes:
        row: the row's name.
        variant: what distinguishes it from the row's others, for all systems.
        work: what the client is told to do.
        ways: of each system, the languages of its clients, and the kinds of calls that they use.
        settings: what the client is told beyond that.
        fill_messages: so many are stored in the topic before.
        scale: the number that the variants vary.
    """

    row: str
    variant: str
    work: str
    ways: Mapping[str, Sequence[tuple[str, str]]]
    settings: Mapping[str, int | float]
    fill_messages: int = 0
    scale: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the comparison.

    Attributes:
        name: on the command line.
        unit: what is counted.
        tasks: its pieces of work, for a plan.
        alone: it kills servers, and gets a system of its own.
    """

    name: str
    unit: str
    tasks: Callable[[Plan], Iterator[Task]]
    alone: bool = field(default=False)


# The client that is best at a kind of work. A call's name is empty where there is no choice.
BEST = {
    "magnetar": (("python", ""),),
    "kafka": (("java", ""),),
    "pulsar": (("java", ""),),
}
PRODUCE_WAYS = {
    "magnetar": (("python", "batch call"), ("python", "call each")),
    "kafka": (("python", "batch call"), ("python", "call each"), ("java", "call each")),
    "pulsar": (("python", "call each"), ("java", "call each")),
}
CONSUME_WAYS = {
    "magnetar": (
        ("python", "columns"),
        ("python", "messages, acked once"),
        ("python", "messages, acked each"),
    ),
    "kafka": (("python", "batch call"), ("python", "call each"), ("java", "batch call")),
    "pulsar": (
        ("python", "batch call"),
        ("python", "call each"),
        ("java", "batch call"),
        ("java", "call each"),
    ),
}
COMMITS_WAYS = {
    "magnetar": (("python", "batch call"), ("python", "call each")),
    "kafka": (("python", "batch call"), ("java", "call each")),
    "pulsar": (("java", "call each"),),
}
TAILING_WAYS = {
    "magnetar": (("python", ""),),
    "kafka": (("python", ""), ("java", "")),
    "pulsar": (("java", ""),),
}
GROWTH_WAYS = {
    "magnetar": (("python", "call each"),),
    "kafka": (("java", "call each"),),
    "pulsar": (("java", "call each"),),
}


def _transactions(plan: Plan) -> Iterator[Task]:
    for at_once in plan.at_once:
        yield Task(
            row="transactions",
            variant=f"{at_once} at once",
            work="transactions",
            ways=BEST,
            settings={"at_once": at_once, "message_bytes": 1024},
            scale=at_once,
        )


def _produce(_: Plan) -> Iterator[Task]:
    for size in SIZES:
        yield Task(
            row="produce",
            variant=f"{size} B",
            work="produce",
            ways=PRODUCE_WAYS,
            settings={"message_bytes": size},
        )


def _consume(plan: Plan) -> Iterator[Task]:
    for size in SIZES:
        yield Task(
            row="consume",
            variant=f"{size} B",
            work="consume",
            ways=CONSUME_WAYS,
            settings={"message_bytes": size},
            fill_messages=plan.messages(size),
        )


def _commits(_: Plan) -> Iterator[Task]:
    for size in SIZES:
        yield Task(
            row="commits",
            variant=f"{size} B",
            work="transactional",
            ways=COMMITS_WAYS,
            settings={"message_bytes": size},
        )


def _hanging(_: Plan) -> Iterator[Task]:
    yield Task(
        row="hanging", variant="", work="hanging", ways=BEST, settings={"message_bytes": 100}
    )


def _transform(plan: Plan) -> Iterator[Task]:
    yield Task(
        row="transform",
        variant="100 B",
        work="transform",
        ways=BEST,
        settings={"message_bytes": 100},
        fill_messages=plan.messages(100),
    )


def _tailing(plan: Plan) -> Iterator[Task]:
    yield Task(
        row="tailing",
        variant=f"100 B, {plan.tail_rate:,}/s",
        work="tailing",
        ways=TAILING_WAYS,
        settings={"message_bytes": 100, "rate": plan.tail_rate},
    )


def _restart(plan: Plan) -> Iterator[Task]:
    yield Task(
        row="restart",
        variant=f"{plan.stored_messages:,} messages",
        work="restart",
        ways=BEST,
        settings={"message_bytes": 100, "count": plan.stored_messages},
    )


def _growth(plan: Plan) -> Iterator[Task]:
    for partitions in plan.growth_partitions:
        yield Task(
            row="growth",
            variant=f"{partitions:,} partitions" if partitions > 1 else "1 partition",
            work="produce",
            ways=GROWTH_WAYS,
            settings={"message_bytes": 100, "partitions": partitions, "in_turn": 1},
            scale=partitions,
        )


ROWS = {
    row.name: row
    for row in (
        Row(name="transactions", unit="transactions", tasks=_transactions),
        Row(name="produce", unit="messages", tasks=_produce),
        Row(name="consume", unit="messages", tasks=_consume),
        Row(name="commits", unit="messages", tasks=_commits),
        Row(name="hanging", unit="messages", tasks=_hanging),
        Row(name="transform", unit="messages", tasks=_transform),
        Row(name="tailing", unit="messages", tasks=_tailing),
        Row(name="growth", unit="messages", tasks=_growth),
        Row(name="restart", unit="restarts", tasks=_restart, alone=True),
    )
}
