"""`magnetar top` by keys, beside real servers, while transactions run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.system.processes import BROKER, COORDINATOR, Servers
from tests.waiting import until

pytest.importorskip("textual", reason="Textual is not installed")

from tests.console.shop import Shop
from tests.console.terminal import line_with, sees, shown
from textual.pilot import Pilot

from magnetar import ClientConfig, TransactionStatus, blocking
from magnetar_console.terminal.app import Top
from magnetar_console.terminal.running import new_hub
from magnetar_core.clock import SystemClock
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.security.link_security import LinkSecurity

pytestmark = pytest.mark.chaos

MARKUP = "[bold red]shop[/] \x1b[31m"
SHOWN_MARKUP = r"[bold red]shop[/] \x1b[31m"


class Scene(Shop):
    """Servers, and transactions that are open."""

    def __init__(self, directory: Path) -> None:
        self.servers = Servers(
            directory,
            {"MAGNETAR_TWO_PHASE_COMMIT_ENABLED": "1"},
            {BROKER: 1, COORDINATOR: 1},
        )
        self._stack = ExitStack()

    def __enter__(self) -> Scene:
        self._stack.enter_context(self.servers.running())
        self.client = self.connect("shop-api")
        self.make_topics()
        self.client.create_producer("orders").send(b"order 1", partition=0)
        self.trade(open_partition=1)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def connect(self, name: str) -> blocking.Client:
        config = ClientConfig(client_name=name)
        return self._stack.enter_context(blocking.connect(self.servers.address, config=config))

    @asynccontextmanager
    async def top(
        self, *, allow_actions: bool = False, size: tuple[int, int] = (80, 24)
    ) -> AsyncIterator[Pilot[None]]:
        """Run it, in a terminal of this size."""
        clock = SystemClock()
        hub = new_hub(
            [self.servers.address],
            lambda: GrpcTransport(LinkSecurity(None, None)),
            clock,
            period_s=0.2,
        )
        app = Top(
            hub,
            clock,
            brokers=self.servers.address,
            viewer="a person",
            allow_actions=allow_actions,
            period_s=0.2,
        )
        try:
            async with app.run_test(size=size) as pilot:
                yield pilot
        finally:
            await hub.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene(tmp_path_factory.mktemp("scene")) as made:
        yield made


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


async def choose(pilot: Pilot[None], text: str) -> None:
    """Move the cursor to the row with this text, which is on the screen."""
    await sees(pilot, text)
    await pilot.press("slash", *text, "enter")
    await sees(pilot, "1 of ")


def test_open_transactions_and_whose_they_are(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top(size=(160, 24)) as pilot:
            await sees(pilot, str(scene.open.txn_id), "live", "May be prepared 1")
            found = line_with(pilot.app, str(scene.open.txn_id))
            assert "shop-api at 127.0.0.1" in found
            assert " min " in found
            assert "invoices / 1; acks of bill: orders / 0" in found
            prepared = line_with(pilot.app, "shop-1")
            assert "may be prepared" in prepared
            assert "never" in prepared
            assert scene.committed not in shown(pilot.app)
            await pilot.press("2")
            await sees(pilot, scene.committed, "committed", "Ended last")

    run(work)


def test_everything_fits_into_80_columns_and_the_row_has_a_line_of_its_own(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top() as pilot:
            await choose(pilot, str(scene.open.txn_id))
            found = await sees(pilot, "→  invoices / 1; acks of bill: orders / 0")
            assert all(len(one) <= 80 for one in found.split("\n"))
            for title in ("TRANSACTION", "WHO", "STATE", "AGE▼", "EXPIRES IN", "WHERE"):
                assert title in found

    run(work)


def test_a_transaction_comes_and_goes(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top(size=(120, 30)) as pilot:
            txn = await asyncio.to_thread(scene.client.begin_transaction)
            name = str(txn.txn_id)
            await sees(pilot, name, "nothing yet")
            await asyncio.to_thread(txn.send, "invoices", b"x", partition=0)
            await sees(pilot, "invoices / 0")
            await asyncio.to_thread(txn.commit)
            await sees(pilot, "Open 2")
            await pilot.press("2")
            found = await sees(pilot, name)
            assert "shop-api" in found
            assert "committed" in line_with(pilot.app, name)

    run(work)


@pytest.mark.parametrize(
    ("key", "texts"),
    [
        ("3", ["TOPIC▲", "orders", "kept.in.a.database", "owners: broker-0", "Partitions 6"]),
        ("4", ["PENDING_ACK", "bill", "orders", "Pending in transactions 1"]),
        ("5", ["GROUP▲", "billing", "stable", "1 member of generation"]),
        ("6", ["Servers 2   all answer", "broker", "coordinator", "answers", "coordinator-0"]),
        ("7", ["SHARD▲", "broker-0", "coordinator-0", "before the watch"]),
    ],
)
def test_each_other_table(scene: Scene, key: str, texts: list[str]) -> None:
    async def work() -> None:
        async with scene.top() as pilot:
            await sees(pilot, "live")
            await pilot.press(key)
            await sees(pilot, *texts)

    run(work)


def test_rows_are_sorted_by_a_key(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top() as pilot:
            oldest = "shop-1"
            found = await sees(pilot, oldest, str(scene.open.txn_id), "AGE▼")
            assert found.index(oldest) < found.index(str(scene.open.txn_id))
            await pilot.press("r")
            found = await sees(pilot, "AGE▲")
            assert found.index(oldest) > found.index(str(scene.open.txn_id))
            await pilot.press("s")
            await sees(pilot, "EXPIRES IN▼")
            # The columns that have no room at 80 columns are left out.
            await pilot.press("s")
            await sees(pilot, "WHERE▲")
            await pilot.press("S", "S", "S", "S")
            await sees(pilot, "WHO▲")

    run(work)


def test_a_filter_looks_into_all_texts(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top() as pilot:
            await sees(pilot, "shop-1", str(scene.open.txn_id))
            await pilot.press("slash", *"BILL")
            found = await sees(pilot, "1 of 2 match 'BILL'", str(scene.open.txn_id))
            assert "may be prepared" not in found
            # Letters that are keys elsewhere are text here, and stay after Enter.
            await pilot.press(*"qsra", "enter")
            await sees(pilot, "No row has this text.", "0 of 2 match 'BILLqsra'")
            await pilot.press("escape")
            found = await sees(pilot, "shop-1", str(scene.open.txn_id))
            assert "match" not in found

    run(work)


def test_the_details_of_a_transaction(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top() as pilot:
            await choose(pilot, str(scene.open.txn_id))
            await pilot.press("enter")
            found = await sees(
                pilot,
                f"Transaction {scene.open.txn_id}",
                "shop-api at 127.0.0.1",
                "Participants: 2",
                "invoices / 1",
                "orders / 0, acks of bill",
                "of 10 min 0 s; expires in",
                "━",
                "after it was begun",
            )
            assert "missing" not in found
            await pilot.press("escape")
            await sees(pilot, "1 Transactions")

    run(work)


def test_the_details_of_what_may_be_prepared_say_what_to_do(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top() as pilot:
            await choose(pilot, "shop-1")
            await pilot.press("enter")
            await sees(
                pilot,
                "It may be prepared: look into the database.",
                f"magnetar transactions complete shop-1 --state {scene.prepared_state}",
                "magnetar transactions force-terminate --abort-prepared shop-1",
                "it never expires",
            )

    run(work)


@pytest.mark.parametrize(
    ("key", "row", "texts"),
    [
        ("3", "invoices", ["Topic invoices", "Partitions: 2", "broker-0", "OPEN TRANSACTIONS"]),
        ("4", "bill", ["Subscription bill of orders", "1 message in", "Consumers: 1"]),
        ("5", "billing", ["Group billing", "Members: 1", "orders / 0", "LAST SIGN OF LIFE"]),
        ("6", "coordinator", ["Server 127.0.0.1:", "answers", "What happened", "coordinator-0"]),
        ("7", "broker-0", ["Shard broker-0", "the server keeps its shard for good", "answers"]),
    ],
)
def test_other_details(scene: Scene, key: str, row: str, texts: list[str]) -> None:
    async def work() -> None:
        async with scene.top() as pilot:
            await sees(pilot, "live")
            await pilot.press(key)
            await sees(pilot, row)
            if key != "4":
                await choose(pilot, row)
            await pilot.press("enter")
            await sees(pilot, *texts)

    run(work)


def test_a_pause_keeps_the_screen_as_it_is(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top(size=(120, 30)) as pilot:
            await sees(pilot, str(scene.open.txn_id), "live")
            await pilot.press("space")
            before = await sees(pilot, "paused at")
            txn = await asyncio.to_thread(scene.client.begin_transaction)
            try:
                # A second one shows it, so that the first has been told about it, too.
                async with scene.top() as other:
                    await sees(other, str(txn.txn_id))
                await pilot.pause()
                assert shown(pilot.app) == before
                await pilot.press("space")
                await sees(pilot, str(txn.txn_id), "live")
            finally:
                await asyncio.to_thread(txn.abort)

    run(work)


def test_an_abort_says_what_will_be_lost(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top(allow_actions=True) as pilot:
            txn = await asyncio.to_thread(scene.client.begin_transaction)
            name = str(txn.txn_id)
            await asyncio.to_thread(txn.send, "invoices", b"x", partition=0)
            await choose(pilot, name)
            await sees(pilot, "invoices / 0")
            await pilot.press("a")
            await sees(
                pilot,
                f"Abort transaction {name}?",
                "All that it has written is discarded:",
                "invoices / 0",
                "Its program (shop-api at 127.0.0.1) gets an error",
            )
            await pilot.press("n")
            await sees(pilot, "1 Transactions")
            admin = scene.client.admin.transactions
            described = await asyncio.to_thread(admin.describe, txn.txn_id)
            assert described.status is TransactionStatus.OPEN
            await pilot.press("a")
            await sees(pilot, "y  abort it")
            # Enter may come from a person who has not read the question.
            await pilot.press("enter")
            await sees(pilot, "y  abort it")
            await pilot.press("y")
            await sees(pilot, "Done: transaction", "0 of ")
            described = await asyncio.to_thread(admin.describe, txn.txn_id)
            assert described.status is TransactionStatus.ABORTED
            app = pilot.app
            assert isinstance(app, Top)
            assert app.done == [f"transaction {name} is aborted"]

    run(work)


def test_an_abort_that_would_lose_more_asks_again(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top(allow_actions=True) as pilot:
            txn = await asyncio.to_thread(scene.client.begin_transaction)
            await choose(pilot, str(txn.txn_id))
            await pilot.press("a")
            await sees(pilot, "It has written and acknowledged nothing.", "y  abort it")
            await asyncio.to_thread(txn.send, "invoices", b"x", partition=0)
            await pilot.press("y")
            await sees(pilot, "the transaction has changed since you looked", "y  abort it")
            await sees(pilot, "invoices / 0")
            await pilot.press("y")
            await sees(pilot, "Done: transaction")

    run(work)


def test_without_the_option_nothing_is_aborted(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top() as pilot:
            await choose(pilot, str(scene.open.txn_id))
            await pilot.press("a")
            found = await sees(pilot, "It can only look. Start it with --allow-actions to abort.")
            assert "y  abort it" not in found
            assert "a abort" not in found

    run(work)


def test_what_may_be_prepared_is_left_to_its_database(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top(allow_actions=True) as pilot:
            await choose(pilot, "shop-1")
            await pilot.press("a")
            found = await sees(pilot, "It may be prepared, so its database decides")
            assert "y  abort it" not in found
            await pilot.press("y", "n")
            await sees(pilot, "may be prepared", "1 of 2 match")

    run(work)


def test_what_people_typed_is_never_markup(scene: Scene) -> None:
    async def work() -> None:
        client = await asyncio.to_thread(scene.connect, MARKUP)
        txn = await asyncio.to_thread(client.begin_transaction)
        try:
            async with scene.top(size=(120, 30)) as pilot:
                await choose(pilot, str(txn.txn_id))
                await sees(pilot, SHOWN_MARKUP)
                assert "\x1b" not in shown(pilot.app)
                await pilot.press("enter")
                await sees(pilot, f"Transaction {txn.txn_id}", SHOWN_MARKUP)
        finally:
            await asyncio.to_thread(txn.abort)

    run(work)


def test_help_shows_the_keys(scene: Scene) -> None:
    async def work() -> None:
        async with scene.top() as pilot:
            await pilot.press("question_mark")
            await sees(pilot, "Keys", "Ctrl-C", "--allow-actions", "Esc: back")
            await pilot.press("escape")
            await sees(pilot, "1 Transactions")

    run(work)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_it_ends(scene: Scene, key: str) -> None:
    async def work() -> None:
        async with scene.top() as pilot:
            await sees(pilot, "live")
            # Also while a filter is written, in which q is a letter.
            if key == "ctrl+c":
                await pilot.press("slash", "q")
            await pilot.press(key)
            await pilot.pause()
            assert pilot.app.return_code == 0

    run(work)


def test_servers_that_are_away_are_shown_with_the_age_of_the_rows(tmp_path: Path) -> None:
    with Scene(tmp_path / "own") as own:

        async def work() -> None:
            async with own.top() as pilot:
                await sees(pilot, str(own.open.txn_id), "live")
                await asyncio.to_thread(own.servers.kill, BROKER)
                # The coordinator still answers, but who is away is seen in each table.
                await sees(pilot, "1 of 2 servers away", str(own.open.txn_id))
                await asyncio.to_thread(own.servers.kill, COORDINATOR)
                await sees(pilot, "2 of 2 servers away", "was open", "its coordinator is away")
                await pilot.press("6")
                await sees(pilot, "2 away", "broker-0", "coordinator-0")
                await choose(pilot, "coordinator")
                await pilot.press("enter")
                await sees(pilot, "away for", "Why", "does not answer")
                await pilot.press("escape", "1")
                # The rows stay, and each says how old it is.
                await sees(pilot, str(own.open.txn_id), "was open", "Coordinator 0 does not answer")
                await asyncio.to_thread(own.servers.start)
                await sees(pilot, "live", "may be prepared")
                await until(lambda: "away" not in shown(pilot.app))

        run(work)
