"""Writes in a transaction pass with their proof only: in each conversation, and in each call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.core.envelope import parsed
from tests.proof_keys import write_keys

from magnetar.testing.envelope import command
from magnetar_core.access.principal import Principal
from magnetar_core.access.rules import RULES
from magnetar_core.clock import SystemClock
from magnetar_core.config import ListenConfig
from magnetar_core.errors import AuthorizationFailed, MagnetarError
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.gates.gates import gates_of, proof_keys_file
from magnetar_core.gates.proof_gate import (
    PROVEN_MAX,
    WRITING,
    ProofGate,
)
from magnetar_core.ids import TxnID
from magnetar_core.security.txn_proofs import ProofKeys
from magnetar_core.security.watched_file import LOOK_INTERVAL_MS
from magnetar_core.server.commands import (
    CommandSession,
    Conversation,
    Gate,
    Reply,
    each,
    run_handler,
)
from magnetar_core.server.grpc_unary import Sender, answer_to
from magnetar_core.transport.columns.new_txns import NewTxn, Opened
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2, service_pb2
from magnetar_core.wire import transaction_pb2 as txn

T1, T2 = TxnID.of(0, 1, 1), TxnID.of(0, 1, 2)
KINDS: tuple[Any, ...] = (wire.CommandSend, wire.CommandPublish, wire.CommandAck)
ENDING = (
    txn.CommandEndTxnOnPartition,
    txn.CommandEndTxnOnSubscription,
    txn.CommandEndTxnOnParticipants,
    txn.CommandEndTxn,
)


class Scene:
    """A server behind the gate, which notes what reaches its handlers."""

    def __init__(self, directory: Path, *keys: str) -> None:
        self.now_ms = 0.0
        self.path = directory / "proof.keys"
        write_keys(self.path, *(keys or ("first",)))
        self.keys = proof_keys_file(str(self.path), lambda: self.now_ms)
        self.gate = ProofGate(None, self.keys)
        self.handled: list[Any] = []
        self.told: list[service_pb2.Command] = []
        self.handlers: dict[str, Any] = dict.fromkeys(RULES, each(self._handle))
        self.handlers["new_txn"] = each(self._new_txn)
        self.answer_sizes: dict[str, Any] = {}

    def converse(self, name: str = "alice", gate: Gate | None = None) -> CommandSession:
        conversation = Conversation(
            write=parsed(lambda frame: self.told.extend(frame.commands)),
            principal=Principal(name),
            gate=gate or self.gate,
        )
        return CommandSession(self.handlers, conversation, self.refuse)

    def accept(self, conversation: Conversation) -> CommandSession:
        raise NotImplementedError

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        reply.fail(error)

    def proof(self, txn_id: TxnID = T1, name: str = "alice") -> bytes:
        return self.keys.content().proof_of(txn_id, Principal(name))

    def reaches(self, session: CommandSession, body: Any) -> bool:
        count = len(self.handled)
        session.on_frame(service_pb2.Frame(commands=[command(body, 1)]))
        return len(self.handled) > count

    async def calls(self, body: Any, name: str = "alice") -> Any:
        """Make a unary call; return its answer."""
        field = command(body).WhichOneof("body")
        assert field is not None
        sender = Sender("", Principal(name), self.gate)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        return await answer_to(self, field, body, sender, answer)

    def _handle(self, body: Any, reply: Reply) -> None:
        self.handled.append(body)
        reply.send(wire.CommandSendResponse())

    def _new_txn(self, body: NewTxn, reply: Reply) -> None:
        if body.txn_timeout_ms:
            raise AuthorizationFailed("not you")
        reply.send(Opened(T1, 5))


def in_loop(test: Callable[[Scene], Any], directory: Path, *keys: str) -> None:
    async def run() -> None:
        done = test(Scene(directory, *keys))
        if done is not None:
            await done

    asyncio.run(run())


def wrong_proofs(scene: Scene) -> list[bytes]:
    other = ProofKeys({"first": b"o" * 32})
    right = scene.proof()
    return [
        b"",
        b"x",
        right[:-1],
        bytes(16) + b"first",
        scene.proof(T2),
        scene.proof(name="bob"),
        other.proof_of(T1, Principal("alice")),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_writes_with_the_right_proof_only(kind: Any, tmp_path: Path) -> None:
    def test(scene: Scene) -> None:
        session = scene.converse()
        for proof in wrong_proofs(scene):
            assert not scene.reaches(session, kind(txn_id=T1.to_wire(), txn_proof=proof)), proof
        right = kind(txn_id=T1.to_wire(), txn_proof=scene.proof())
        for _ in range(3):
            assert scene.reaches(session, right)
        # Whoever has proved it once proves it again: what works once works always.
        for proof in wrong_proofs(scene):
            assert not scene.reaches(session, kind(txn_id=T1.to_wire(), txn_proof=proof)), proof
        assert not scene.reaches(session, kind(txn_id=T2.to_wire(), txn_proof=scene.proof()))

    in_loop(test, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_unary_call_writes_with_the_right_proof_only(kind: Any, tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        for _ in range(2):
            for proof in wrong_proofs(scene):
                told = await scene.calls(kind(txn_id=T1.to_wire(), txn_proof=proof))
                assert told.code == common_pb2.AUTHORIZATION_FAILED
                assert not scene.handled
            await scene.calls(kind(txn_id=T1.to_wire(), txn_proof=scene.proof()))
            assert scene.handled.pop()

    in_loop(test, tmp_path)


def test_what_one_has_proved_counts_for_nobody_else(tmp_path: Path) -> None:
    def test(scene: Scene) -> None:
        alice, bob = scene.converse(), scene.converse("bob")
        for kind in KINDS:
            proved = kind(txn_id=T1.to_wire(), txn_proof=scene.proof())
            assert scene.reaches(alice, proved)
            assert not scene.reaches(bob, proved)
            assert not scene.reaches(bob, kind(txn_id=T1.to_wire()))
            # Another conversation of alice begins anew.
            assert not scene.reaches(scene.converse(), kind(txn_id=T1.to_wire()))
            assert scene.reaches(scene.converse(), proved)

    in_loop(test, tmp_path)


def test_plain_writes_and_ends_need_none(tmp_path: Path) -> None:
    def test(scene: Scene) -> None:
        session = scene.converse()
        for kind in KINDS:
            assert scene.reaches(session, kind())
        for kind in ENDING:
            assert scene.reaches(session, kind(txn_id=T1.to_wire()))

    in_loop(test, tmp_path)


def test_a_refusal_says_who_and_what_to_do(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        told = await scene.calls(wire.CommandSend(txn_id=T1.to_wire()), "bob")
        assert told.details == {"txn_id": str(T1), "principal": "bob"}
        for part in ("bob", str(T1), "txn_proof_keys_file"):
            assert part in told.message

    in_loop(test, tmp_path)


def test_every_command_that_writes_in_a_transaction_is_checked() -> None:
    """Whoever adds a command with a TxnID decides here whether it writes."""
    reading_or_ending = {
        *("peek", "describe_participants"),
        *("end_txn_on_partition", "end_txn_on_subscription", "end_txn_on_participants"),
        # The coordinator's; it knows whose the transaction is.
        *("add_partition_to_txn", "add_subscription_to_txn", "end_txn", "describe_txn"),
        *("accept_txn_loss", "abort_hanging_txn"),
    }
    bodies: list[tuple[Any, str]] = list(FIELD_OF_BODY.items())
    named = {name for body, name in bodies if "txn_id" in body.DESCRIPTOR.fields_by_name}
    assert named & RULES.keys() == WRITING | reading_or_ending
    proving = {name for body, name in bodies if "txn_proof" in body.DESCRIPTOR.fields_by_name}
    assert proving == {*WRITING, "new_txn_response"}


# What hands it out.


def test_whoever_begins_gets_a_proof_of_their_own(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        for name in ("alice", "bob"):
            told = await scene.calls(txn.CommandNewTxn(), name)
            assert told.txn_timeout_ms == 5
            assert told.txn_id == T1.to_wire()
            assert told.txn_proof == scene.proof(name=name)

    in_loop(test, tmp_path)


def test_an_answer_that_is_kept_for_copies_has_no_proof(tmp_path: Path) -> None:
    def test(scene: Scene) -> None:
        kept = Opened(T1, 5)
        told: list[Opened] = []
        reply = Reply(told.append, None, principal=Principal("alice"))
        admitted = scene.gate.admit("new_txn", NewTxn(), reply)
        assert admitted is not None
        admitted.send(kept)
        assert told[0].txn_proof == scene.proof()
        assert not kept.txn_proof

    in_loop(test, tmp_path)


def test_a_refused_beginning_stays_refused(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        told = await scene.calls(txn.CommandNewTxn(txn_timeout_ms=1))
        assert told.code == common_pb2.AUTHORIZATION_FAILED

    in_loop(test, tmp_path)


# One check for each conversation and transaction, and no more than so much memory.


def test_a_conversation_costs_one_hash_for_each_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[TxnID] = []
    check = ProofKeys.complaint_about

    def counted(keys: ProofKeys, proof: bytes, txn_id: TxnID, principal: Principal) -> str | None:
        checked.append(txn_id)
        return check(keys, proof, txn_id, principal)

    monkeypatch.setattr(ProofKeys, "complaint_about", counted)

    def test(scene: Scene) -> None:
        session, ids = scene.converse(), [TxnID.of(0, 1, one) for one in range(PROVEN_MAX + 1)]

        def write(txn_id: TxnID) -> bool:
            body = wire.CommandSend(txn_id=txn_id.to_wire(), txn_proof=scene.proof(txn_id))
            return scene.reaches(session, body)

        for one in ids[:-1]:
            for _ in range(2):
                assert write(one)
        assert checked == ids[:-1]
        # One more: the oldest is forgotten, and asked again.
        assert write(ids[-1])
        assert write(ids[-2])
        assert len(checked) == len(ids)
        assert write(ids[0])
        assert len(checked) == len(ids) + 1

    in_loop(test, tmp_path)


# Keys that change.


def test_rotation_while_a_transaction_is_open(tmp_path: Path) -> None:
    def test(scene: Scene) -> None:
        coordinator_file = tmp_path / "coordinator.keys"
        write_keys(coordinator_file, "first")
        coordinator = proof_keys_file(str(coordinator_file), lambda: scene.now_ms)
        session, alice = scene.converse(), Principal("alice")

        def reaches(proof: bytes) -> bool:
            """Whether it counts, in a conversation that goes on and in a new one alike."""
            body = wire.CommandAck(txn_id=T1.to_wire(), txn_proof=proof)
            goes_on = scene.reaches(session, body)
            assert scene.reaches(scene.converse(), body) is goes_on
            return goes_on

        old = coordinator.content().proof_of(T1, alice)
        assert reaches(old)
        for names in (("first", "second"), ("second", "first")):
            write_keys(coordinator_file, *names)
            write_keys(scene.path, *names)
            scene.now_ms += LOOK_INTERVAL_MS
            assert reaches(old)
            assert reaches(coordinator.content().proof_of(T1, alice))
        new = coordinator.content().proof_of(T1, alice)
        assert new != old
        # What was proved with a key counts no longer than the key does.
        assert reaches(old)
        write_keys(scene.path, "second")
        scene.now_ms += LOOK_INTERVAL_MS
        assert not reaches(old)
        assert reaches(new)

    in_loop(test, tmp_path)


def test_a_coordinator_that_saw_the_new_key_first_harms_nobody(tmp_path: Path) -> None:
    def test(scene: Scene) -> None:
        early = ProofKeys.parse(Path(write_keys(tmp_path / "early", "second")).read_bytes())
        proof = early.proof_of(T1, Principal("alice"))
        body = wire.CommandSend(txn_id=T1.to_wire(), txn_proof=proof)
        session = scene.converse()
        assert not scene.reaches(session, body)
        write_keys(scene.path, "second", "first")
        # No time has passed: the unknown key is the reason to look.
        assert scene.reaches(session, body)

    in_loop(test, tmp_path)


def test_a_damaged_new_file_leaves_the_former_keys(tmp_path: Path) -> None:
    def test(scene: Scene) -> None:
        session = scene.converse()
        right = wire.CommandSend(txn_id=T1.to_wire(), txn_proof=scene.proof())
        scene.path.write_text("nonsense\n")
        scene.now_ms += LOOK_INTERVAL_MS
        assert scene.reaches(session, right)
        assert not scene.reaches(session, wire.CommandSend(txn_id=T1.to_wire()))

    in_loop(test, tmp_path)


@pytest.mark.parametrize("servers", ["", "coordinator-0"])
def test_rights_come_first(servers: str, tmp_path: Path) -> None:
    """With rights, or without: proofs are checked; and only rights refuse what is for servers."""

    def test(scene: Scene) -> None:
        file = str(scene.path)
        listen = ListenConfig(token_keys_file="keys", txn_proof_keys_file=file)
        gate = gates_of(AccessConfig(server_principals=servers), listen, SystemClock())
        session = scene.converse(gate=gate)
        end = txn.CommandEndTxnOnPartition(txn_id=T1.to_wire())
        assert scene.reaches(session, end) is not bool(servers)
        assert not scene.reaches(session, wire.CommandSend(txn_id=T1.to_wire()))
        right = wire.CommandSend(txn_id=T1.to_wire(), txn_proof=scene.proof())
        assert scene.reaches(session, right)
        assert gate is not None
        gate.come(Principal("alice"))()

    in_loop(test, tmp_path)


def test_nothing_is_handled_after_a_refusal(tmp_path: Path) -> None:
    def test(scene: Scene) -> None:
        told: list[Any] = []
        reply = Reply(told.append, None, principal=Principal("bob"))
        items = [(wire.CommandSend(txn_id=T1.to_wire()), reply)]
        run_handler(scene.handlers, "send", items, scene.refuse, scene.gate)
        assert [one.code for one in told] == [common_pb2.AUTHORIZATION_FAILED]
        assert not scene.handled

    in_loop(test, tmp_path)
