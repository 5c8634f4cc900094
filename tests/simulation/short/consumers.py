"""Scenarios of consumers: what transactions acknowledge and give back, and who gets it then."""

from __future__ import annotations

from typing import Any

from tests.simulation.short.draft import Draft
from tests.simulation.short.producers import writer_settings

TYPES = ("exclusive", "failover", "shared", "key_shared")


def filled(draft: Draft, topic: str, count: int) -> int:
    """Plain messages to begin with; returns the step after which they are there."""
    random = draft.random
    client = draft.client("filler")
    settings = {"topic": topic, "linger_ms": 0.0, "batch_messages_max": random.choice((1, 3, 8))}
    partitions = [draft.partition(topic) for _ in range(count)]
    return draft.step(
        client,
        "plain",
        writer="w",
        settings=settings,
        partitions=partitions,
        wait=False,
        flush=True,
    )


def subscription(draft: Draft, topic: str, kind: str, *, type: str) -> dict[str, Any]:
    random = draft.random
    return {
        "topic": topic,
        "subscription": f"{kind}-{len(draft.steps)}",
        "type": type,
        "receiver_queue_messages": random.choice((1, 4, 64)),
        "ack_linger_ms": random.choice((0.0, 5.0)),
    }


def in_order(draft: Draft) -> None:
    """One consumer acknowledges all it has in transactions, and aborts them."""
    random = draft.random
    topic = draft.topic("mix", 2)
    settings = subscription(
        draft, topic, "order", type=random.choice(("exclusive", "exclusive", "failover", "shared"))
    )
    before = filled(draft, topic, random.randint(8, 24))
    client = draft.client("consumer")
    for number in range(random.randint(3, 6)):
        draft.step(
            client,
            "take",
            consumer="c",
            settings=settings,
            count=random.choice((3, 10, 30)),
            way=random.choice(("many", "many", "each", "cumulative"))
            if settings["type"] in ("exclusive", "failover")
            else random.choice(("many", "each")),
            end=random.choice(("abort", "abort", "abort", "commit")),
            alone=True,
            after=(before,) if number == 0 else (),
        )
    if random.random() < 0.5:
        # New messages come while old ones come back.
        feed(draft, topic, random.randint(2, 5))
    draft.step(client, "drain", consumer="c", settings=settings, closing=True)


def feed(draft: Draft, topic: str, count: int) -> None:
    random = draft.random
    producer = draft.client("producer")
    settings = writer_settings(random, topic)
    for _ in range(count):
        draft.step(
            producer,
            "plain",
            writer="w",
            settings=settings,
            partitions=[draft.partition(topic) for _ in range(random.randint(1, 3))],
            wait=False,
            flush=True,
            pause_s=random.uniform(0.0, 0.2),
        )


def seeks(draft: Draft) -> None:
    """The cursor moves, also to the beginning of a log whose beginning is gone."""
    random = draft.random
    topic = draft.topic("mix", 2)
    if random.random() < 0.7:
        draft.settings["topic"]["retention_bytes"] = random.choice((1, 300))
        draft.settings["broker"]["retention_check_interval_ms"] = 50
    settings = subscription(draft, topic, "seek", type=random.choice(TYPES))
    before = filled(draft, topic, random.randint(4, 16))
    client = draft.client("consumer")
    for _ in range(random.randint(2, 4)):
        draft.step(client, "drain", consumer="c", settings=settings, after=(before,))
        before = draft.step(
            client,
            "seek",
            consumer="c",
            settings=settings,
            position=random.choice(("earliest", "earliest", "latest")),
            pause_s=random.choice((0.0, 0.1, 0.2)),
        )
        if random.random() < 0.5:
            before = filled(draft, topic, random.randint(1, 6))
    draft.step(client, "drain", consumer="c", settings=settings, closing=True)


def idle_client(draft: Draft) -> None:
    """An administrator aborts what an idle client holds; its messages come to it again at once."""
    random = draft.random
    topic = draft.topic("mix", 2)
    settings = subscription(draft, topic, "idle", type=random.choice(TYPES))
    before = filled(draft, topic, random.randint(3, 10))
    client, administrator = draft.client("consumer"), draft.client("admin")
    for number in range(random.choice((1, 2))):
        slot = f"held{number}"
        held = draft.step(
            client,
            "hold",
            consumer="c",
            settings=settings,
            count=random.choice((1, 3, 20)),
            slot=slot,
            send=random.choice((None, {"topic": topic})),
            after=(before,),
        )
        aborted = draft.step(
            administrator,
            "administer",
            holder=client,
            slot=slot,
            after=(held,),
            pause_s=random.choice((0.0, 0.3)),
        )
        draft.step(
            client,
            "regain",
            consumer="c",
            settings=settings,
            slot=slot,
            administrator=administrator,
            after=(aborted,),
        )
    draft.step(client, "drain", consumer="c", settings=settings, closing=True)


def keys_held(draft: Draft) -> None:
    """A key waits for a transaction while the broker starts anew, and who had it stays away."""
    random = draft.random
    topic = draft.topic("mix", 2)
    settings = subscription(draft, topic, "held", type="key_shared")
    before = filled(draft, topic, random.randint(10, 24))
    holder = draft.client("holder")
    held = draft.step(
        holder,
        "hold",
        consumer="c",
        settings=settings,
        count=random.choice((1, 3, 6)),
        slot="held",
        timeout_s=random.choice((2.0, 4.0)),
        after=(before,),
    )
    first = len(draft.steps) + 1
    for _ in range(random.choice((1, 2))):
        client = draft.client("consumer")
        for number in range(3):
            draft.step(
                client,
                "drain",
                consumer="c",
                settings=settings,
                after=(held,),
                pause_s=random.uniform(0.0, 0.4) if number else 0.0,
            )
        draft.step(client, "drain", consumer="c", settings=settings, closing=True)
    draft.fault(
        "crash",
        step=first,
        delay_s=random.choice((0.0, random.uniform(0.0, 0.2))),
        server="broker",
        power_loss=random.random() < 0.5,
        down_s=round(random.uniform(0.01, 0.3), 3),
    )
    if random.random() < 0.7:
        draft.fault(
            "client crash", step=first, client=holder, down_s=round(random.uniform(0.5, 3.0), 3)
        )
    if random.random() < 0.5:
        feed(draft, topic, random.randint(1, 3))


def crowd(draft: Draft) -> None:
    """Several consumers of one subscription, in transactions and plainly; they come and go."""
    random = draft.random
    topic = draft.topic("mix", 2)
    type = random.choice(("shared", "key_shared", "key_shared", "failover"))
    settings = subscription(draft, topic, "crowd", type=type)
    before = filled(draft, topic, random.randint(6, 20))
    for _ in range(random.choice((2, 3))):
        client = draft.client("consumer")
        for number in range(random.randint(2, 5)):
            after = (before,) if number == 0 else ()
            kind = random.random()
            pause_s = random.choice((0.0, random.uniform(0.0, 0.3)))
            if kind < 0.6:
                draft.step(
                    client,
                    "take",
                    consumer="c",
                    settings=settings,
                    count=random.choice((1, 3, 10)),
                    way=random.choice(("many", "each")),
                    end=random.choice(("abort", "commit", "commit")),
                    after=after,
                    pause_s=pause_s,
                )
            elif kind < 0.75:
                left = draft.step(client, "leave", consumer="c", after=after, pause_s=pause_s)
                if random.random() < 0.3:
                    _attach_again(draft, client, left)
            else:
                draft.step(
                    client,
                    "drain",
                    consumer="c",
                    settings=settings,
                    nack_share=random.choice((0.0, 0.5)),
                    after=after,
                    pause_s=pause_s,
                )
    feed(draft, topic, random.randint(2, 5))
    draft.step(client, "drain", consumer="c", settings=settings, closing=True)


def _attach_again(draft: Draft, client: str, left: int) -> None:
    """An attempt to attach comes once more when its consumer has left."""
    random = draft.random
    draft.fault(
        "copies",
        step=left,
        delay_s=random.choice((0.005, 0.02, 0.1)),
        client=client,
        server="broker",
        command="subscribe",
        late_s=0.0,
        count=2,
    )


def keys_moving(draft: Draft) -> None:
    """Keys go to who joins when they are settled for good, and the disk takes its time for that."""
    random = draft.random
    topic = draft.topic("mix", 2)
    settings = subscription(draft, topic, "moving", type="key_shared")
    settings["receiver_queue_messages"] = random.choice((1, 4, 8))
    before = filled(draft, topic, random.randint(10, 24))
    holder = draft.client("holder")
    kept = draft.step(
        holder, "keep", consumer="c", settings=settings, count=8, slot="kept", after=(before,)
    )
    for _ in range(random.choice((1, 2))):
        client = draft.client("consumer")
        for _ in range(3):
            # Who gives something back has the broker look for what it may hand out.
            draft.step(
                client, "drain", consumer="c", settings=settings, nack_share=0.7, after=(kept,)
            )
        draft.step(client, "drain", consumer="c", settings=settings, closing=True)
    for _ in range(random.choice((1, 2, 3))):
        acked = draft.step(
            holder,
            "ack kept",
            consumer="c",
            settings=settings,
            count=random.choice((1, 2, 8)),
            slot="kept",
            pause_s=random.uniform(0.05, 0.4),
        )
        draft.fault(
            "disk stall",
            step=acked,
            server="broker",
            sync_s=random.choice((0.03, 0.1)),
            seconds=0.2,
        )
    draft.step(holder, "leave", consumer="c", pause_s=random.choice((0.0, 0.2)))
