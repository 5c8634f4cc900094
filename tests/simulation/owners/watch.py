"""Who speaks in a shard's name, and who writes its rows: the checkers of ownership.

The directory's own state decides, at the moment in which something happens; what members believe
does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NoReturn

from tests.simulation.links import SimulatedLink
from tests.simulation.owners.fenced_store import FencedStore
from tests.simulation.owners.opening import Opening

from magnetar_cluster.directory.view import ShardName
from magnetar_core.membership.shard_address import ShardPlace
from magnetar_core.wire import service_pb2 as pb


class OwnersWatch:
    """Follows frames, conversations and writes of all owners.

    Args:
        violation: ends the run; it is told which checker complains, and what is wrong.
    """

    def __init__(self, violation: Callable[[str, str], NoReturn]) -> None:
        self._violation = violation
        self.counts: Counter[str] = Counter()
        # By shard: who made something durable, in the order in which they came.
        self._writers: dict[ShardName, list[FencedStore]] = {}
        # By shard and epoch: who spoke.
        self._speakers: dict[tuple[ShardName, int], str] = {}

    def speaks(self, opening: Opening, link: SimulatedLink, frame: pb.Frame) -> None:
        """A frame leaves in a shard's name: nobody else has the shard, and its lease lasts."""
        if not opening.is_current:
            what = ", ".join(command.WhichOneof("body") or "nothing" for command in frame.commands)
            self._violation(
                "owners",
                f"{opening.node.name} says {what} on #{link.number} for {opening.name} in epoch"
                f" {opening.epoch}, which is over",
            )
        if link.client_part is opening and not link.broken:
            self._check_addressee(opening, link)
        key = opening.seat.shard, opening.epoch
        known = self._speakers.setdefault(key, opening.node.name)
        if known != opening.node.name:
            self._violation("owners", f"{known} and {opening.node.name} both have {key}")
        self.counts["frames of owners"] += 1

    def _check_addressee(self, opening: Opening, link: SimulatedLink) -> None:
        """Who has seen that a shard has another owner says nothing to the former one."""
        former = link.server_part
        if not isinstance(former, Opening):
            return
        view = opening.node.view()
        owner = view.shard_owners.get(former.seat.shard)
        # A view from before the claim says nothing.
        if view.revision >= former.epoch and (owner is None or owner.epoch != former.epoch):
            self._violation(
                "owners",
                f"{opening.name} at {opening.node.name} stays on #{link.number} with"
                f" {former.name} in epoch {former.epoch}, and has seen that {owner} has it",
            )

    def entered(self, opening: Opening, place: ShardPlace | None) -> None:
        """Somebody is let in: to the ownership that was meant, if one was named."""
        if place is not None and place != opening.place:
            self._violation("owners", f"who wants {place} gets {opening.place} of {opening.name}")
        self.counts["conversations"] += 1

    def writes(self, opening: Opening) -> None:
        """A write begins: not of what was abandoned."""
        if opening.is_abandoned:
            self._violation("owners", f"{opening.name} writes, and {opening.epoch} was abandoned")

    def wrote(self, shard: ShardName, store: FencedStore) -> None:
        """Something has become durable: whoever was fenced adds nothing any more."""
        writers = self._writers.setdefault(shard, [])
        if writers and writers[-1] is store:
            return
        if store in writers:
            epochs = [writer.epoch for writer in writers]
            self._violation(
                "owners", f"{shard}: who opened it for {store.epoch} writes again, after {epochs}"
            )
        if any(writer.epoch == store.epoch for writer in writers):
            self._violation("owners", f"{shard}: two have written in epoch {store.epoch}")
        if writers and store.epoch < writers[-1].epoch:
            # It slept between its claim and the opening. Nobody hears of what it wrote.
            self.counts["opened late"] += 1
        writers.append(store)
