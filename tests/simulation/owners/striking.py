"""Faults of owners in long histories: they strike whoever has a shard."""

from __future__ import annotations

from random import Random

from tests.simulation.owners.cluster import OwnersCluster
from tests.simulation.owners.directory import BACK, TO

# With how likely each is, beside a plan's other faults.
OWNER_FAULTS = {
    "member killed": 0.1,
    "member frozen": 0.4,
    "member stopped": 0.1,
    "member joins": 0.05,
    "shard pinned": 0.2,
    "directory away": 0.05,
    "cut from the directory": 0.2,
    "cut from stores": 0.1,
    "renewal answered late": 0.1,
}
# Without a renewal for so long a lease has ended.
LEASE_LOST_SECONDS = (1.3, 3.0)


def trouble_seconds(random: Random) -> float:
    """Shorter than what a lease forgives, about as long, or longer."""
    return random.choice(
        (random.uniform(0.05, 0.6), random.uniform(0.6, 1.3), random.uniform(1.3, 3.0))
    )


def strike_owners(cluster: OwnersCluster, random: Random, kind: str) -> bool:
    """Returns whether there was somebody to strike."""
    loop = cluster.environment.loop
    seat = random.choice(list(cluster.seats.values()))
    node = cluster.owner_node(seat)
    seconds = trouble_seconds(random)
    if kind == "directory away":
        cluster.directory_away(seconds)
    elif node is None or not node.alive:
        return False
    elif kind == "member killed":
        others = cluster.others_alive(node)
        node.gone = bool(others) and random.random() < 0.3
        node.kill()
        if not node.gone:
            loop.call_later(seconds, cluster.bring_back, node)
    elif kind == "member stopped":
        node.stop()
        loop.call_later(seconds, cluster.restart, node)
    elif kind == "member frozen":
        cluster.freeze(node, seconds, asking=random.random() < 0.5)
    elif kind == "member joins":
        if len(cluster.members) < 8:
            cluster.add(node.kind).start()
    elif kind == "shard pinned":
        nodes = [one for one in cluster.members.values() if one.kind == node.kind]
        cluster.pin(seat.shard, random.choice(nodes))
        loop.call_later(seconds, cluster.pin, seat.shard, None)
    elif kind == "cut from the directory":
        for direction in random.choice(((TO,), (BACK,), (TO, BACK))):
            cluster.cut(node, direction, seconds)
    elif kind == "renewal answered late":
        cluster.answer_late(node, random.uniform(*LEASE_LOST_SECONDS))
    else:
        node.lose_store(seconds)
    return True
