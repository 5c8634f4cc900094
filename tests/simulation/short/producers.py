"""Scenarios of producers: in transactions and plainly, alone, beside each other, and after each
other; with outcomes that nobody hears."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.simulation.short.draft import Draft

TIMEOUTS_S = (0.4, 1.0, 3.0)


def writer_settings(random: Random, topic: str) -> dict[str, Any]:
    """How a producer batches."""
    return {
        "topic": topic,
        "batching": random.choice(("mixed", "mixed", "by_key")),
        "linger_ms": random.choice((0.0, 1.0)),
        "batch_messages_max": random.choice((1, 2, 8)),
    }


def transactions(draft: Draft) -> None:
    """Producers over several partitions, plain messages between, one or two tasks a client."""
    random = draft.random
    topics = [draft.topic("in", 2), draft.topic("mix", 2)]
    for _ in range(random.choice((1, 2))):
        client = draft.client("producer")
        settings = {f"w{number}": writer_settings(random, topics[number]) for number in range(2)}
        # Tasks share the producers: what one does stands in the way of what the other does.
        tasks = random.choice((1, 1, 2))
        for _ in range(random.randint(4, 8)):
            one_step(draft, client, settings, task=random.randrange(tasks))


def one_step(
    draft: Draft, client: str, settings: dict[str, dict[str, Any]], *, task: int = 0
) -> None:
    random = draft.random
    name = random.choice(list(settings))
    pause_s = random.choice((0.0, 0.0, random.uniform(0.0, 0.1)))
    common: dict[str, Any] = {"task": task, "pause_s": pause_s}
    partition = draft.partition(settings[name]["topic"])
    kind = random.random()
    if kind < 0.6:
        one_transaction(draft, client, settings, **common)
    elif kind < 0.75:
        count = random.randint(1, 3)
        other = (partition + 1) % draft.topics[settings[name]["topic"]]
        # What fills a batch makes it begin, too.
        fits = count < settings[name]["batch_messages_max"]
        draft.step(
            client,
            "whole",
            writer=name,
            settings=settings[name],
            partition=partition,
            count=count,
            also=random.choice((None, None, other)) if fits else other,
            **common,
        )
    else:
        draft.step(
            client,
            "plain",
            writer=name,
            settings=settings[name],
            partitions=[
                draft.partition(settings[name]["topic"]) for _ in range(random.randint(1, 3))
            ],
            wait=random.random() < 0.5,
            flush=random.random() < 0.4,
            **common,
        )


def one_transaction(
    draft: Draft, client: str, settings: dict[str, dict[str, Any]], **common: Any
) -> int:
    random = draft.random
    names = list(settings)
    sends = []
    for _ in range(random.randint(1, 5)):
        name = random.choice(names)
        sends.append((name, draft.partition(settings[name]["topic"]), random.random() < 0.3))
    end = random.choices(("commit", "abort", "leave", "late"), (7, 2, 1, 1))[0]
    return draft.step(
        client,
        "transact",
        writers=settings,
        sends=sends,
        timeout_s=random.choice(TIMEOUTS_S),
        end=end,
        wait_finished=random.random() < 0.3,
        **common,
    )


def unheard(draft: Draft) -> None:
    """One producer, one partition, and commits of which nobody hears: it goes on with the next."""
    random = draft.random
    topic = draft.topic("mix", 2)
    client = draft.client("producer")
    settings = {"w": {"topic": topic, "linger_ms": 0.0, "batch_messages_max": 8}}
    partition = draft.partition(topic)
    draft.settings["client"]["commit_timeout_ms"] = 150
    draft.settings["client"]["request_timeout_ms"] = random.choice((100, 300))
    for _ in range(random.randint(4, 7)):
        draft.step(
            client,
            "transact",
            writers=settings,
            sends=[("w", partition, random.random() < 0.5)] * random.randint(1, 2),
            timeout_s=random.choice((0.5, 1.0, 2.0, 4.0, 30.0)),
            end="commit",
            unheard=random.choice(("", "request", "request", "answer")),
            attempts=1,
        )
        if random.random() < 0.15:
            draft.step(
                client,
                "plain",
                writer="w",
                settings=settings["w"],
                partitions=[partition],
                wait=False,
            )
    draft.step(client, "find out", pause_s=1.0)
    draft.step(client, "flush", writer="w", pause_s=5.0)


def by_turns(draft: Draft) -> None:
    """Two producers on one partition, in transactions that follow each other."""
    random = draft.random
    topic = draft.topic("mix", 2)
    partition = draft.partition(topic)
    client = draft.client("producer")
    settings = {f"turn{number}": writer_settings(random, topic) for number in range(2)}
    for number in range(random.randint(5, 9)):
        names = [f"turn{number % 2}"]
        if random.random() < 0.5:
            names.append(f"turn{1 - number % 2}")
        draft.step(
            client,
            "transact",
            writers=settings,
            sends=[(name, partition, random.random() < 0.2) for name in names],
            timeout_s=random.choice(TIMEOUTS_S),
            end=random.choice(("commit", "commit", "commit", "abort")),
            unheard=random.choice(("", "", "", "answer")),
        )
        if random.random() < 0.4:
            name = random.choice(list(settings))
            draft.step(
                client,
                "plain",
                writer=name,
                settings=settings[name],
                partitions=[partition],
                wait=random.random() < 0.3,
            )
    for name in settings:
        draft.step(client, "flush", writer=name)


def behind(draft: Draft) -> None:
    """Ends come late to the broker; what a producer sends meanwhile waits, and keeps its order."""
    random = draft.random
    topic = draft.topic("mix", 2)
    partition = draft.partition(topic)
    client = draft.client("producer")
    settings = {
        name: {"topic": topic, "linger_ms": 0.0, "batch_messages_max": 1} for name in ("w", "v")
    }
    for _ in range(random.randint(2, 4)):
        names = random.choice((["w"], ["w", "w"], ["w", "v"]))
        begun = draft.step(
            client,
            "transact",
            writers=settings,
            sends=[(name, partition, True) for name in names],
            timeout_s=3.0,
            end=random.choice(("commit", "commit", "abort")),
        )
        draft.fault(
            "partition",
            step=begun,
            delay_s=random.choice((0.0, random.uniform(0.0, 0.02))),
            client="coordinator",
            server="broker",
            seconds=round(random.uniform(0.05, 0.6), 3),
        )
        draft.step(
            client,
            "plain",
            writer=random.choice(names),
            settings=settings["w"],
            partitions=[partition] * random.randint(2, 6),
            wait=False,
            flush=True,
            patient=False,
        )


def idle_producer(draft: Draft) -> None:
    """Plain producers that fall silent for about as long as a broker remembers them."""
    random = draft.random
    topic = draft.topic("mix", 2)
    # Longer than anybody repeats a send, and than a copy travels: what is forgotten is over.
    idle_ms = random.choice((2_000, 3_000))
    draft.settings["broker"]["producer_idle_ms_max"] = idle_ms
    draft.settings["client"]["send_timeout_ms"] = 700
    draft.settings["broker"]["retention_check_interval_ms"] = 50
    settings = writer_settings(random, topic)
    client = draft.client("producer")
    for _ in range(random.randint(5, 9)):
        draft.step(
            client,
            "plain",
            writer="w",
            settings=settings,
            partitions=[draft.partition(topic) for _ in range(random.randint(1, 3))],
            wait=random.random() < 0.7,
            flush=True,
            pause_s=random.choice((0.0, idle_ms / 3000, idle_ms / 2000, idle_ms / 900)),
        )


def amid(draft: Draft) -> None:
    """Plain messages right before and during commits, whose ends come late to the broker."""
    random = draft.random
    topic = draft.topic("mix", 2)
    partition = draft.partition(topic)
    client = draft.client("producer")
    settings = {
        "w": {
            "topic": topic,
            "linger_ms": random.choice((0.0, 20.0)),
            "batch_messages_max": random.choice((2, 8)),
        }
    }
    for _ in range(random.randint(4, 7)):
        begun = draft.step(
            client,
            "transact",
            writers=settings,
            sends=[("w", partition, True)] * random.randint(1, 2),
            timeout_s=3.0,
            end=random.choice(("commit", "commit", "commit", "abort")),
            last=[("w", partition)] * random.choice((0, 1, 2)),
            beside=[
                ("w", partition, random.choice((0.0, random.uniform(0.0, 0.01))))
                for _ in range(random.choice((0, 1, 3)))
            ],
        )
        if random.random() < 0.5:
            draft.fault(
                "partition",
                step=begun,
                delay_s=random.uniform(0.0, 0.02),
                client="coordinator",
                server="broker",
                seconds=round(random.uniform(0.02, 0.4), 3),
            )
        if random.random() < 0.5:
            draft.step(
                client,
                "plain",
                writer="w",
                settings=settings["w"],
                partitions=[partition] * random.randint(1, 3),
                wait=False,
                flush=random.random() < 0.3,
                pause_s=random.choice((0.0, 0.1, 0.5)),
            )
    draft.step(client, "flush", writer="w", pause_s=1.0)


def late_refusals(draft: Draft) -> None:
    """Whole batches whose first copy is late, and whose second one finds a full disk."""
    random = draft.random
    topic = draft.topic("mix", 2)
    client = draft.client("producer")
    settings = {"topic": topic, "linger_ms": 0.0, "batch_messages_max": 8}
    for _ in range(random.randint(3, 5)):
        partition = draft.partition(topic)
        sent = draft.step(
            client,
            "plain",
            writer="w",
            settings=settings,
            partitions=[partition],
            wait=True,
            pause_s=random.choice((0.0, 0.5)),
        )
        # The broker looks at its disk now and then.
        draft.fault(
            "disk full", step=sent + 1, server="broker", seconds=round(random.uniform(0.2, 0.4), 3)
        )
        draft.step(client, "flush", writer="w")
        whole = draft.step(
            client,
            "whole",
            writer="w",
            settings=settings,
            partition=partition,
            count=random.randint(1, 3),
            pause_s=random.uniform(0.1, 0.2),
        )
        draft.fault(
            "link",
            step=whole,
            delay_s=random.uniform(0.0, 0.003),
            client=client,
            server="broker",
            late=True,
        )
    draft.step(client, "flush", writer="w", pause_s=3.0)
