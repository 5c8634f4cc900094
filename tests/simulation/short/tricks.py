"""Tricks of hand-made clients as steps: each is a transaction that knows what must come of it."""

from __future__ import annotations

from typing import Any

from tests.simulation import other_tricks
from tests.simulation.raw_programs import TRICKS
from tests.simulation.servers import broker_names
from tests.simulation.short.actors import Actor
from tests.simulation.short.draft import Draft
from tests.simulation.short.script import Step
from tests.simulation.short.world import Verb

ALL = {
    trick.__name__.replace("_", " "): trick
    for trick in (
        *TRICKS,
        other_tricks.first_sequence,
        other_tricks.old_incarnation,
        other_tricks.older_watermark,
    )
}


UNCOUNTED = "end without counts"


async def trick(actor: Actor, step: Step, *, name: str) -> None:
    world = actor.world
    await ALL[name](world, actor.unit(step), actor.random(f"trick/{step.number}"))


def hand_made(draft: Draft) -> None:
    """Some tricks, one after the other, by one or two clients."""
    random = draft.random
    for topic in ("in", "mix", "out"):
        draft.topic(topic, 2)
    # Where transactions end without counts, what a stranger writes into one that he guessed counts.
    names = [one for one in ALL if one != UNCOUNTED or "strangers" not in draft.scenarios]
    for _ in range(random.choice((1, 2))):
        client = draft.client("sloppy")
        for _ in range(random.randint(2, 5)):
            name = random.choice(names)
            draft.step(client, "trick", name=name, pause_s=random.choice((0.0, 0.05)))


def lost_stores(draft: Draft) -> None:
    """A coordinator loses its store again and again, while the broker starts anew."""
    random = draft.random
    draft.topic("mix", 2)
    client = draft.client("sloppy")
    for _ in range(random.choice((2, 3))):
        lost = draft.step(
            client, "trick", name="old incarnation", pause_s=random.choice((0.0, 0.05))
        )
        draft.fault(
            "crash",
            step=lost,
            delay_s=random.uniform(0.0, 0.1),
            server="broker",
            power_loss=random.random() < 0.5,
            in_write_s=0.0,
            down_s=0.01,
        )


def watermarks(draft: Draft) -> None:
    """Brokers move, or fall, while coordinators tell them what has ended."""
    random = draft.random
    draft.topic("mix", 2)
    client = draft.client("sloppy")
    for _ in range(random.choice((2, 3))):
        told = draft.step(
            client,
            "trick",
            name=random.choice(("older watermark", "older watermark", "old incarnation")),
            pause_s=random.choice((0.0, 0.05)),
        )
        kind = random.choice(("member killed", "pinned"))
        delay_s = random.uniform(0.0, 0.4)
        # Whichever of them has the partition.
        for server in broker_names(3):
            if kind == "pinned":
                arguments: dict[str, Any] = {"seconds": 1.0, "member": random.randrange(3)}
            else:
                arguments = {"down_s": 0.01, "for_good": False}
            draft.fault(kind, step=told, delay_s=delay_s, server=server, **arguments)


VERBS: dict[str, Verb] = {"trick": trick}
