"""A client that guesses a TxnID cannot write with it at brokers, and leaves no trace there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.access.roles import APP, OWNER
from tests.access.world import (
    BROKER,
    COORDINATOR,
    RawClient,
    World,
    is_refused,
    world,
    write_access,
)
from tests.proof_keys import write_keys

from magnetar_core import batch
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.security.watched_file import LOOK_INTERVAL_MS
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2
from magnetar_core.wire import transaction_pb2 as txn

PRINCIPALS = {
    "anonymous": ["coordinator"],
    "alice": ["app", "owner"],
    "bob": ["app", "owner"],
    "boss": ["admin"],
}
# May WRITE the topic, too.
STRANGERS = ("bob", "boss")
PARTITION = common.Partition(topic="topic")
SUBSCRIPTION = common.Subscription(topic="topic", subscription="s")
FORMS = ("unary", "stream")


def send(txn_id: common.TxnId, proof: bytes = b"") -> wire.CommandSend:
    payload = batch.encode([b"sent"])
    return wire.CommandSend(
        partition=PARTITION,
        producer_id=7,
        num_messages=1,
        txn_id=txn_id,
        batch=payload,
        txn_proof=proof,
    )


def publish(txn_id: common.TxnId, proof: bytes = b"") -> wire.CommandPublish:
    return wire.CommandPublish(
        partition=PARTITION,
        messages=[wire.Message(value=b"published")],
        producer_id=8,
        txn_id=txn_id,
        txn_proof=proof,
    )


def ack(txn_id: common.TxnId, proof: bytes = b"") -> wire.CommandAck:
    return wire.CommandAck(
        subscription=SUBSCRIPTION,
        consumer_id=9,
        ranges=[common.OffsetRange(first=0, last=0)],
        txn_id=txn_id,
        txn_proof=proof,
    )


WRITES: tuple[Callable[..., Any], ...] = (send, publish, ack)


class Scene:
    def __init__(self, servers: World) -> None:
        self.servers = servers
        self._clients: list[RawClient] = []

    def client(self, name: str, service: str) -> RawClient:
        self._clients.append(RawClient(self.servers, service, name))
        return self._clients[-1]

    async def broker(self, name: str, body: Any, form: str = "unary") -> Any:
        """Ask the broker, as clients do: again while it does not know a transaction yet."""
        client = self.client(name, BROKER)
        while True:
            told = await client.ask(body, form)
            if not (isinstance(told, common.ServerError) and told.code == common.LOG_UNAVAILABLE):
                return told

    async def coordinator(self, name: str, body: Any, form: str = "unary") -> Any:
        return await self.client(name, COORDINATOR).ask(body, form)

    async def begin(self, name: str = "alice", form: str = "unary", **fields: Any) -> Any:
        body = txn.CommandNewTxn(partitions=[PARTITION], subscriptions=[SUBSCRIPTION], **fields)
        opened = await self.coordinator(name, body, form)
        assert isinstance(opened, txn.CommandNewTxnResponse), opened
        return opened

    async def end(self, opened: Any, name: str = "alice", **fields: Any) -> None:
        body = txn.CommandEndTxn(txn_id=opened.txn_id, wait_finished=True, **fields)
        ended = await self.coordinator(name, body)
        assert isinstance(ended, txn.CommandEndTxnResponse), ended

    async def open_here(self) -> list[Any]:
        """Return the open transactions at the broker, of whatever kind."""
        described = await self.broker("boss", wire.CommandDescribeProducers(partition=PARTITION))
        return [one for one in described.producers if one.HasField("txn_id")]

    async def values(self) -> list[bytes]:
        peeked = await self.broker("alice", wire.CommandPeek(partition=PARTITION))
        return [one.value for one in peeked.messages]

    async def close(self) -> None:
        for client in self._clients:
            await client.__aexit__()


def scenario(
    tmp_path: Path,
    steps: Callable[[Scene], Awaitable[None]],
    keys: Mapping[str, tuple[str, ...]] | None = None,
    access: AccessConfig | None = None,
) -> None:
    """Run steps with a topic that has a message, and a subscription that has not seen it."""
    given = {BROKER: ("first",), COORDINATOR: ("first",)} if keys is None else keys
    access = access or write_access(tmp_path / "access.toml", PRINCIPALS, APP + OWNER)
    files = {service: write_keys(tmp_path / service, *names) for service, names in given.items()}

    async def run() -> None:
        async with world(access, tmp_path, proof_keys=files) as servers:
            scene = Scene(servers)
            try:
                await scene.broker("alice", topic_pb2.CommandCreateTopic(topic="topic"))
                subscribe = wire.CommandSubscribe(
                    subscription=SUBSCRIPTION, initial_position=wire.EARLIEST
                )
                await scene.broker("alice", subscribe)
                plain = wire.CommandPublish(
                    partition=PARTITION, messages=[wire.Message(value=b"plain")]
                )
                assert not is_refused(await scene.broker("bob", plain))
                await steps(scene)
            finally:
                await scene.close()

    asyncio.run(run())


@pytest.mark.parametrize("form", FORMS)
def test_who_guesses_a_txn_id_writes_nothing(form: str, tmp_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        opened = await scene.begin(form=form)
        own = await scene.begin("bob")
        stolen = (b"", b"guess", own.txn_proof, opened.txn_proof)
        for stranger in STRANGERS:
            for write in WRITES:
                for proof in stolen:
                    told = await scene.broker(stranger, write(opened.txn_id, proof), form)
                    assert is_refused(told), (stranger, told)
                    assert stranger in told.message
        # Not even the owner without the proof: a client that does not know the field.
        for write in WRITES:
            told = await scene.broker("alice", write(opened.txn_id), form)
            assert is_refused(told)
            assert "txn_proof_keys_file" in told.message
        # Nothing was left behind: no row, no sequence, no acknowledged message.
        assert await scene.open_here() == []
        listed = await scene.broker("alice", wire.CommandListStoredTxns(partition=PARTITION))
        assert not listed.transactions
        for write in WRITES:
            told = await scene.broker("alice", write(opened.txn_id, opened.txn_proof), form)
            assert not isinstance(told, common.ServerError), told
        # Two producers, and a consumer.
        assert len(await scene.open_here()) == len(WRITES)
        await scene.end(opened)
        await scene.end(own, "bob", txn_action=common.ABORT)
        assert await scene.values() == [b"plain", b"sent", b"published"]
        assert await scene.open_here() == []

    scenario(tmp_path, steps)


def test_who_guesses_ids_that_nobody_has_yet_harms_no_later_owner(tmp_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        first = await scene.begin()
        for ahead in range(1, 50):
            later = common.TxnId(
                most_bits=first.txn_id.most_bits, least_bits=first.txn_id.least_bits + ahead
            )
            assert is_refused(await scene.broker("bob", send(later, first.txn_proof)))
        opened = await scene.begin()
        for write in WRITES:
            told = await scene.broker("alice", write(opened.txn_id, opened.txn_proof))
            assert not isinstance(told, common.ServerError), told
        await scene.end(opened)

    scenario(tmp_path, steps)


def test_an_administrator_ends_what_it_cannot_write_in(tmp_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        opened = await scene.begin()
        await scene.broker("alice", send(opened.txn_id, opened.txn_proof))
        assert is_refused(await scene.broker("boss", send(opened.txn_id)))
        await scene.end(opened, "boss", txn_action=common.ABORT)
        assert await scene.open_here() == []
        # The proof says who may write, and not that it is open.
        told = await scene.broker("alice", send(opened.txn_id, opened.txn_proof))
        assert told.code in (common.INVALID_TXN_STATE, common.TXN_NOT_FOUND), told

    scenario(tmp_path, steps)


def test_each_principal_that_joins_named_work_gets_a_proof_of_its_own(tmp_path: Path) -> None:
    """Tasks of one job may have credentials of their own."""

    async def steps(scene: Scene) -> None:
        named = txn.NamedSequence(name="job", sequence=1, run_token="run")
        opened = {name: await scene.begin(name, named_sequence=named) for name in STRANGERS}
        first, second = opened.values()
        assert first.txn_id == second.txn_id
        assert first.txn_proof != second.txn_proof
        for (name, other), write in zip(
            [("bob", "boss"), ("boss", "bob")], (send, publish), strict=True
        ):
            body = write(first.txn_id, opened[other].txn_proof)
            assert is_refused(await scene.broker(name, body))
            body = write(first.txn_id, opened[name].txn_proof)
            assert isinstance(await scene.broker(name, body), wire.CommandSendResponse)

    scenario(tmp_path, steps)


def test_a_repeated_beginning_of_a_transactional_id_gets_the_proof_again(tmp_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        taken = await scene.coordinator("alice", txn.CommandInitProducer(transactional_id="id"))
        identity = common.ProducerIdentity(
            transactional_id="id",
            producer_id=taken.producer_id,
            producer_epoch=taken.producer_epoch,
        )
        first = await scene.begin(identity=identity)
        assert first.txn_proof
        assert await scene.begin(identity=identity) == first
        told = await scene.broker("alice", send(first.txn_id, first.txn_proof))
        assert isinstance(told, wire.CommandSendResponse), told

    scenario(tmp_path, steps)


# Every mix of settings: does a write pass with the coordinator's proof, and without it.
MIXES: list[tuple[dict[str, tuple[str, ...]], bool, bool, bool]] = [
    # Keys; is there a proof; does it pass; does a write without any.
    ({}, False, True, True),
    ({COORDINATOR: ("first",)}, True, True, True),
    ({BROKER: ("first",)}, False, False, False),
    ({BROKER: ("first",), COORDINATOR: ("first",)}, True, True, False),
    ({BROKER: ("other",), COORDINATOR: ("first",)}, True, False, False),
    ({BROKER: ("other", "first"), COORDINATOR: ("first",)}, True, True, False),
]


@pytest.mark.parametrize(("keys", "is_given", "passes", "passes_without"), MIXES)
def test_every_mix_of_settings(
    keys: dict[str, tuple[str, ...]],
    is_given: bool,
    passes: bool,
    passes_without: bool,
    tmp_path: Path,
) -> None:
    async def steps(scene: Scene) -> None:
        opened = await scene.begin()
        assert bool(opened.txn_proof) is is_given
        for write in WRITES:
            told = await scene.broker("alice", write(opened.txn_id))
            assert is_refused(told) is not passes_without, told
            if not passes_without:
                told = await scene.broker("alice", write(opened.txn_id, opened.txn_proof))
                assert is_refused(told) is not passes, told
        # What cannot go on can be ended.
        await scene.end(opened, txn_action=common.ABORT)

    scenario(tmp_path, steps, keys)


def test_keys_are_rotated_while_a_transaction_is_open(tmp_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        opened = await scene.begin()
        for number, names in enumerate((("first", "new"), ("new", "first"), ("new",))):
            for service in (BROKER, COORDINATOR):
                write_keys(tmp_path / service, *names)
            scene.servers.now_ms += LOOK_INTERVAL_MS
            later = await scene.begin()
            for one, counts in ((later, True), (opened, "first" in names)):
                told = await scene.broker("alice", publish(one.txn_id, one.txn_proof))
                assert is_refused(told) is not counts, (number, told)
        assert "'first'" in told.message
        # It had written meanwhile, and may commit that.
        await scene.end(opened)
        assert await scene.values() == [b"plain", b"published"]

    scenario(tmp_path, steps)


@pytest.mark.parametrize("form", FORMS)
def test_without_an_access_file_proofs_count_all_the_same(form: str, tmp_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        opened = await scene.begin(form=form)
        told = await scene.broker("bob", send(opened.txn_id, opened.txn_proof), form)
        assert is_refused(told)
        told = await scene.broker("alice", send(opened.txn_id, opened.txn_proof), form)
        assert isinstance(told, wire.CommandSendResponse), told

    scenario(tmp_path, steps, access=AccessConfig())
