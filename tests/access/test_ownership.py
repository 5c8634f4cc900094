"""A transaction is its principal's: others neither write into it, nor end it, nor see it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.access.roles import APP, OWNER
from tests.access.world import (
    COORDINATOR,
    RawClient,
    World,
    is_refused,
    world,
    write_access,
)

from magnetar_coordinator.metadata.records import (
    TxnEnded,
    TxnOpened,
)
from magnetar_coordinator.metadata.transaction import TxnStatus
from magnetar_coordinator.metadata.transaction_rows import (
    decode_metadata,
    decode_outcome,
    encode_metadata,
    encode_outcome,
)
from magnetar_core.ids import TxnID
from magnetar_core.security.watched_file import LOOK_INTERVAL_MS
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as txn

SERVERS = {"anonymous": ["coordinator"]}
PRINCIPALS = {
    **SERVERS,
    "alice": ["app", "owner"],
    "bob": ["app"],
    "carol": ["app", "owner"],
    "boss": ["admin"],
}


class Scene:
    def __init__(self, servers: World, path: Path, clients: dict[str, RawClient]) -> None:
        self.servers = servers
        self.path = path
        self.clients = clients

    def withdraw(self, name: str) -> None:
        left = {one: roles for one, roles in PRINCIPALS.items() if one != name}
        write_access(self.path, left, APP + OWNER)
        self.servers.now_ms += LOOK_INTERVAL_MS

    async def ids(self, name: str) -> list[int]:
        listed = await self.clients[name].unary(
            txn.CommandListTxns(statuses=[common.OPEN, common.ABORTED, common.COMMITTED])
        )
        return [one.txn_id.least_bits for one in listed.transactions]

    async def changes(
        self, name: str, place: txn.TxnChangesPlace | None = None
    ) -> tuple[list[int], list[int], txn.TxnChangesPlace]:
        """Live transactions, and ended ones."""
        told = await self.clients[name].unary(txn.CommandListTxnChanges(place=place))
        live, ended = (
            [one.txn_id.least_bits for one in some] for some in (told.transactions, told.ended)
        )
        return live, ended, told.place


def scenario(
    tmp_path: Path,
    steps: Callable[[Scene], Awaitable[None]],
) -> None:
    path = tmp_path / "access.toml"
    access = write_access(path, PRINCIPALS, APP + OWNER)

    async def run() -> None:
        async with world(access, tmp_path) as servers:
            clients = {
                principal: RawClient(servers, COORDINATOR, principal) for principal in PRINCIPALS
            }
            try:
                await steps(Scene(servers, path, clients))
            finally:
                for client in clients.values():
                    await client.__aexit__()

    asyncio.run(run())


@pytest.mark.parametrize("form", ["unary", "stream"])
@pytest.mark.parametrize("action", [common.COMMIT, common.ABORT])
def test_who_guesses_a_txn_id_has_nothing(
    form: str, action: common.TxnAction, tmp_path: Path
) -> None:
    async def steps(scene: Scene) -> None:
        alice, bob = scene.clients["alice"], scene.clients["bob"]
        opened = await alice.ask(txn.CommandNewTxn(), form)
        partitions = [common.Partition(topic="none")]
        add = txn.CommandAddPartitionToTxn(txn_id=opened.txn_id, partitions=partitions)
        subscriptions = [common.Subscription(topic="none", subscription="s")]
        for body in (
            txn.CommandEndTxn(txn_id=opened.txn_id, txn_action=action),
            txn.CommandEndTxn(txn_id=opened.txn_id, txn_action=action, wait_finished=True),
            add,
            txn.CommandAddSubscriptionToTxn(txn_id=opened.txn_id, subscriptions=subscriptions),
            txn.CommandDescribeTxn(txn_id=opened.txn_id),
        ):
            assert is_refused(await bob.ask(body, form)), body
        # The owner is not refused; the topic does not exist.
        assert not is_refused(await alice.ask(add, form))
        end = txn.CommandEndTxn(txn_id=opened.txn_id, txn_action=action)
        for _ in range(2):
            ended = await alice.ask(end, form)
            assert isinstance(ended, txn.CommandEndTxnResponse), ended
        # Not even what became of it.
        assert is_refused(await bob.ask(end, form))

    scenario(tmp_path, steps)


def test_an_administrator_ends_any_transaction_but_adds_nothing(tmp_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        opened = await scene.clients["alice"].unary(txn.CommandNewTxn())
        boss = scene.clients["boss"]
        partitions = [common.Partition(topic="none")]
        add = txn.CommandAddPartitionToTxn(txn_id=opened.txn_id, partitions=partitions)
        assert is_refused(await boss.unary(add))
        end = txn.CommandEndTxn(txn_id=opened.txn_id, txn_action=common.ABORT)
        assert isinstance(await boss.unary(end), txn.CommandEndTxnResponse)

    scenario(tmp_path, steps)


def test_lists_show_ones_own(tmp_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        own = {}
        for name in ("alice", "bob"):
            opened = await scene.clients[name].unary(txn.CommandNewTxn())
            own[name] = opened.txn_id.least_bits
            described = await scene.clients[name].unary(
                txn.CommandDescribeTxn(txn_id=opened.txn_id)
            )
            assert described.transaction.principal == name
        assert await scene.ids("alice") == [own["alice"]]
        assert await scene.ids("bob") == [own["bob"]]
        assert await scene.ids("boss") == [own["alice"], own["bob"]]
        places = {}
        for name in ("alice", "bob", "boss"):
            live, _, places[name] = await scene.changes(name)
            assert live == await scene.ids(name)
        # Ended, too.
        end = txn.CommandEndTxn(txn_action=common.ABORT)
        end.txn_id.CopyFrom(opened.txn_id)
        await scene.clients["bob"].unary(end)
        assert await scene.ids("alice") == [own["alice"]]
        assert await scene.ids("bob") == [own["bob"]]
        seen = {name: (await scene.changes(name, place))[:2] for name, place in places.items()}
        assert seen == {"alice": ([], []), "bob": ([], [own["bob"]]), "boss": ([], [own["bob"]])}

    scenario(tmp_path, steps)


@pytest.mark.parametrize("with_id", [True, False])
def test_a_right_that_is_withdrawn_leaves_nothing_half_done(with_id: bool, tmp_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        alice = scene.clients["alice"]
        begin = txn.CommandNewTxn()
        if with_id:
            taken = await alice.unary(txn.CommandInitProducer(transactional_id="id"))
            begin.identity.transactional_id = "id"
            begin.identity.producer_id = taken.producer_id
            begin.identity.producer_epoch = taken.producer_epoch
        opened = await alice.unary(begin)
        end = txn.CommandEndTxn(txn_id=opened.txn_id, txn_action=common.COMMIT)
        if with_id:
            end.identity.CopyFrom(begin.identity)
        scene.withdraw("alice")
        assert is_refused(await alice.unary(begin))
        assert is_refused(await scene.clients["bob"].unary(end))
        for _ in range(2):
            ended = await alice.unary(end)
            assert isinstance(ended, txn.CommandEndTxnResponse), ended

    scenario(tmp_path, steps)


def test_a_transactional_id_is_of_all_who_may_use_it(tmp_path: Path) -> None:
    """Another instance of a program may have a certificate of its own."""

    async def steps(scene: Scene) -> None:
        alice, bob, carol = (scene.clients[one] for one in ("alice", "bob", "carol"))
        taken = await alice.unary(txn.CommandInitProducer(transactional_id="id", enable_2pc=True))
        identity = common.ProducerIdentity(
            transactional_id="id",
            producer_id=taken.producer_id,
            producer_epoch=taken.producer_epoch,
        )
        await alice.unary(txn.CommandNewTxn(identity=identity))
        keep = txn.CommandInitProducer(transactional_id="id", enable_2pc=True, keep_prepared=True)
        assert is_refused(await bob.unary(keep))
        kept = await carol.unary(keep)
        pair = common.ProducerIdentity(
            transactional_id="id",
            producer_id=kept.producer_id,
            producer_epoch=kept.producer_epoch,
        )
        end = txn.CommandEndTxn(txn_action=common.COMMIT, identity=pair)
        assert is_refused(await bob.unary(end))
        ended = await carol.unary(end)
        assert isinstance(ended, txn.CommandEndTxnResponse), ended

    scenario(tmp_path, steps)


def test_a_record_keeps_whose_it_is() -> None:
    txn_id = TxnID.of(0, 1, 2)
    opened = TxnOpened(txn_id, 1, 2, 3, principal="alice")
    assert decode_metadata(txn_id, encode_metadata(opened)) == opened
    ended = TxnEnded(txn_id, TxnStatus.COMMITTED, 1, 2, b"", principal="alice")
    assert decode_outcome(txn_id, encode_outcome(ended)) == ended
