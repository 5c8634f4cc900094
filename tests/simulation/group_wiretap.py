"""Listens where frames enter and leave the broker, and knows who owns which partition of a group.

What the broker has announced binds it, whatever crashes afterwards: a partition has one owner a
generation, a later owner's announcement ends the earlier one's acks, and the later one is handed
nothing while a transaction of an earlier generation holds acks there (docs/design/0003-groups.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from magnetar_core.wire import service_pb2 as pb

# A group's name, topic id, partition.
Cursor = tuple[str, int, int]
TxnKey = tuple[int, int]
Request = tuple[int, int]


class _Ack(NamedTuple):
    cursor: Cursor
    member_id: str
    txn: TxnKey | None
    generation: int
    # The newest one that was announced when the command came.
    announced: int
    ends: int


class _Claim(NamedTuple):
    """A partition that a member says it holds, and since when."""

    cursor: Cursor
    generation: int
    # The newest generation that was announced when the heartbeat came.
    announced: int


class _Word(NamedTuple):
    """A member's newest heartbeat, on its way."""

    number: int
    # How often the member had asked to join.
    joins: int
    claims: list[_Claim]
    # Of earlier heartbeats: what was given away while their answers were on their way.
    overtaken: list[_Claim]


class GroupWiretap:
    """Args:
    violation: ends the run; invariant and text.
    """

    def __init__(self, violation: Callable[[str, str], NoReturn]) -> None:
        self._violation = violation
        self._owners: dict[tuple[Cursor, int], str] = {}
        self._announced: dict[Cursor, int] = {}
        self._members: dict[Request, tuple[str, str]] = {}
        # Heartbeats on their way, unless they are late copies.
        self._held: dict[Request, _Word] = {}
        self._heartbeats: dict[tuple[str, str], int] = {}
        self._join_calls: Counter[tuple[str, str]] = Counter()
        # What was given away while a heartbeat that names it was not answered, until a join.
        self._overtaken: dict[tuple[str, str], list[_Claim]] = {}
        self._acks: dict[Request, _Ack] = {}
        self._subscribes: dict[Request, Any] = {}
        # The cursor of each attached consumer, and the generation with which it attached.
        self._consumers: dict[tuple[int, int, int], tuple[Cursor, int]] = {}
        self._pending: dict[Cursor, dict[TxnKey, int]] = {}
        self._ends: Counter[tuple[Cursor, TxnKey]] = Counter()
        # The newest generation of each group that was announced; what it was when calls arrived.
        self._generations: dict[str, int] = {}
        self._asked_in: dict[Request, tuple[str, int]] = {}
        # With which epoch a member had joined when it left: a copy of that call is refused.
        self._joins: dict[Request, tuple[tuple[str, str], int, bool]] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        self._leaves: dict[Request, tuple[tuple[str, str], int]] = {}
        # Calls to leave that were answered: a copy gets the same answer, and changes nothing.
        self._leaves_done: set[int] = set()
        self._left: dict[tuple[str, str], int] = {}
        self.counts: Counter[str] = Counter()

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            request = link, command.request_id
            if name in ("join_group", "group_heartbeat"):
                body = getattr(command, name)
                known = self._generations.get(body.group, 0)
                self._asked_in.setdefault(request, (body.group, known))
                if name == "group_heartbeat" and request not in self._members:
                    self._note_held(request, body)
                self._members.setdefault(request, (body.group, body.member_id))
                if name == "join_group":
                    self._note_join(request, body)
            elif name == "leave_group":
                member = command.leave_group.group, command.leave_group.member_id
                self._leaves[request] = member, command.leave_group.call_token
            elif name == "ack" and command.ack.HasField("member"):
                self._acks.setdefault(request, self._ack(command.ack))
            elif name == "subscribe" and command.subscribe.HasField("member"):
                self._subscribes[request] = command.subscribe
            elif name == "delete_group":
                self._forget(command.delete_group.group)
            elif name == "end_txn_on_subscription":
                end = command.end_txn_on_subscription
                cursor, txn = _cursor(end.subscription), _txn(end.txn_id)
                self._ends[cursor, txn] += 1
                self._pending.get(cursor, {}).pop(txn, None)

    def _forget(self, group: str) -> None:
        """What is made anew under a deleted group's name counts its generations from 1 on."""
        self._owners = {key: one for key, one in self._owners.items() if key[0][0] != group}
        self._announced = {key: one for key, one in self._announced.items() if key[0] != group}
        self._generations.pop(group, None)
        self._asked_in = {key: one for key, one in self._asked_in.items() if one[0] != group}
        self._left = {key: one for key, one in self._left.items() if key[0] != group}

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            request = link, command.request_id
            if name == "join_group_response":
                self._check_join(request)
                self._announce(request, command.join_group_response.state)
            elif name == "leave_group_response":
                left, token = self._leaves.pop(request, (None, 0))
                if left is not None and token not in self._leaves_done:
                    self._left[left] = self._epochs.get(left, 0)
                    self._leaves_done |= {token} - {0}
            elif name == "group_heartbeat_response":
                self._check_held(request, command.group_heartbeat_response)
                self._announce(request, command.group_heartbeat_response)
            elif name == "ack_response":
                ack = self._acks.pop(request, None)
                if ack is not None:
                    self._confirm(ack)
            elif name == "subscribe_response":
                wire = self._subscribes.pop(request, None)
                if wire is not None:
                    cursor = _cursor(wire.subscription)
                    key = (wire.consumer_id, cursor[1], cursor[2])
                    self._consumers[key] = cursor, wire.member.generation
            elif name == "error":
                self._held.pop(request, None)
                self._joins.pop(request, None)
                self._leaves.pop(request, None)
                self._asked_in.pop(request, None)
                known = (self._members, self._subscribes, self._acks)
                if any([some.pop(request, None) is not None for some in known]):
                    self.counts["refused"] += 1
            elif name == "deliver":
                self._check(command.deliver)

    def on_crash(self) -> None:
        """The broker is gone. Copies of what it was asked do not survive that."""
        self._joins.clear()
        self._leaves.clear()
        self._leaves_done.clear()
        self._left.clear()

    def _note_join(self, request: Request, wire: Any) -> None:
        member = wire.group, wire.member_id
        # Perhaps it was a member no more, and others may have got what it held.
        self._join_calls[member] += 1
        self._overtaken.pop(member, None)
        is_late = 0 < wire.join_epoch <= self._left.get(member, 0)
        self._joins.setdefault(request, (member, wire.join_epoch, is_late))

    def _check_join(self, request: Request) -> None:
        """Who has left comes back with a higher epoch, or not at all."""
        member, epoch, is_late = self._joins.pop(request, (("", ""), 0, False))
        if is_late:
            self._violation("p", f"{member} has left, and is back by a copy of its join {epoch}")
        self._epochs[member] = max(epoch, self._epochs.get(member, 0))

    def _check_generation(self, request: Request, generation: int) -> None:
        """The generations of a group only rise, whatever crashes."""
        group, known = self._asked_in.pop(request, ("", 0))
        if generation < known:
            self._violation(
                "group", f"{group} was in generation {known}, and is in {generation} now"
            )
        if group:
            self._generations[group] = max(generation, self._generations.get(group, 0))

    def _note_held(self, request: Request, wire: Any) -> None:
        """What a member says with its newest heartbeat binds the broker while it is a member."""
        member = wire.group, wire.member_id
        if wire.heartbeat_number <= self._heartbeats.get(member, 0):
            return
        self._heartbeats[member] = wire.heartbeat_number
        cursors = {
            (wire.group, one.partition.topic_id, one.partition.partition): one.generation
            for one in wire.held
        }
        self._held[request] = _Word(
            wire.heartbeat_number,
            self._join_calls[member],
            [
                _Claim(cursor, generation, self._announced.get(cursor, 0))
                for cursor, generation in cursors.items()
                if self._owners.get((cursor, generation)) == member[1]
            ],
            self._overtaken.get(member, []),
        )

    def _check_held(self, request: Request, state: Any) -> None:
        """What a member holds is given to nobody, as long as it is one.

        This answer says that it was one when its heartbeat came. It may have left since, and
        another one's answer may be the first to leave, even of those that became durable together.
        """
        member = self._members.get(request)
        word = self._held.pop(request, None)
        if member is None or word is None:
            return
        given = {
            (member[0], one.partition.topic_id, one.partition.partition): one.generation
            for one in state.assigned
        }
        for claim in [*word.claims, *word.overtaken]:
            newest = max(claim.announced, given.get(claim.cursor, 0))
            if newest > claim.generation:
                self._violation(
                    "p",
                    f"{claim.cursor} was given away in {newest}, and {member[1]} holds it since"
                    f" {claim.generation}",
                )
        is_newest = word.number == self._heartbeats.get(member, 0)
        if is_newest and word.joins == self._join_calls[member]:
            self._note_overtaken(member, word.claims)

    def _note_overtaken(self, member: tuple[str, str], claims: list[_Claim]) -> None:
        """If the member is one still at its next heartbeat, these were given away too early."""
        for claim in claims:
            announced = self._announced.get(claim.cursor, 0)
            if announced > claim.generation:
                overtaken = claim._replace(announced=announced)
                self._overtaken.setdefault(member, []).append(overtaken)

    def _announce(self, request: Request, state: Any) -> None:
        self._check_generation(request, state.generation)
        asked = self._members.pop(request, None)
        if asked is None:
            return
        group, member_id = asked
        for one in state.assigned:
            cursor = (group, one.partition.topic_id, one.partition.partition)
            owner = self._owners.setdefault((cursor, one.generation), member_id)
            if owner != member_id:
                self._violation(
                    "group",
                    f"{cursor} has two owners in generation {one.generation}: {owner} and"
                    f" {member_id}",
                )
            self._announced[cursor] = max(self._announced.get(cursor, 0), one.generation)

    def _ack(self, wire: Any) -> _Ack:
        cursor = _cursor(wire.subscription)
        txn = _txn(wire.txn_id) if wire.HasField("txn_id") else None
        ends = self._ends[cursor, txn] if txn is not None else 0
        announced = self._announced.get(cursor, 0)
        return _Ack(cursor, wire.member.member_id, txn, wire.member.generation, announced, ends)

    def _confirm(self, ack: _Ack) -> None:
        if not any(
            cursor == ack.cursor and owner == ack.member_id
            for (cursor, _), owner in self._owners.items()
        ):
            self._violation("p", f"{ack.cursor} takes an ack of {ack.member_id}, never its owner")
        if ack.generation < ack.announced:
            self._violation(
                "group",
                f"{ack.cursor} takes an ack of generation {ack.generation}, while that of"
                f" {ack.announced} has it",
            )
        if ack.txn is not None and self._ends[ack.cursor, ack.txn] == ack.ends:
            pending = self._pending.setdefault(ack.cursor, {})
            pending[ack.txn] = min(ack.generation, pending.get(ack.txn, ack.generation))

    def _check(self, wire: Any) -> None:
        attached = self._consumers.get((wire.consumer_id, wire.topic_id, wire.partition))
        if attached is None:
            return
        cursor, generation = attached
        for txn, earlier in self._pending.get(cursor, {}).items():
            if earlier < generation:
                self._violation(
                    "group",
                    f"{cursor} is read in generation {generation}, while {txn} of {earlier} is"
                    " open there",
                )


def _cursor(wire: Any) -> Cursor:
    return (wire.subscription, wire.topic_id, wire.partition)


def _txn(wire: Any) -> TxnKey:
    return (wire.most_bits, wire.least_bits)
