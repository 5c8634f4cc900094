"""The rows of the comparison: for each, what the clients are told to do.

README.md says what each of them means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.peers.plan import Plan

PARTITIONS = 8
SIZES = (100, 1024)
BESIDE_OPEN_AT_ONCE = 16


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
        alone: each of its tasks gets a system of its own, since they leave something behind.
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
            work="commits",
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


def _growth_partitions(plan: Plan) -> Iterator[Task]:
    for partitions in plan.growth_partitions:
        yield Task(
            row="growth-partitions",
            variant=_counted(partitions, "partition"),
            work="produce",
            ways=GROWTH_WAYS,
            settings={"message_bytes": 100, "partitions": partitions, "in_turn": 1},
            scale=partitions,
        )


def _growth_producers(plan: Plan) -> Iterator[Task]:
    for producers in plan.growth_producers:
        yield Task(
            row="growth-producers",
            variant=_counted(producers, "producer"),
            work="produce",
            ways=GROWTH_WAYS,
            settings={"message_bytes": 100, "producers": producers},
            scale=producers,
        )


def _growth_open(plan: Plan) -> Iterator[Task]:
    for count in plan.growth_open:
        yield Task(
            row="growth-open",
            variant=_counted(count, "open transaction"),
            work="transactions",
            ways=BEST,
            settings={
                "at_once": BESIDE_OPEN_AT_ONCE,
                "message_bytes": 1024,
                "open_transactions": count,
            },
            scale=count,
        )


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


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
        Row(name="growth-partitions", unit="messages", tasks=_growth_partitions),
        Row(name="growth-producers", unit="messages", tasks=_growth_producers),
        Row(name="growth-open", unit="transactions", tasks=_growth_open, alone=True),
        Row(name="restart", unit="restarts", tasks=_restart, alone=True),
    )
}
