"""The page of what does not end by itself: hanging transactions, and two-phase commit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.processes import COORDINATOR

from magnetar import ProducerFenced, TransactionStatus, TxnID, blocking

pytest.importorskip("playwright", reason="Playwright is not installed")

from playwright.sync_api import Browser, Page, expect
from tests.console.browsing import CHROMIUM, watched
from tests.console.running import running_console
from tests.console.scene import Scene, row

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]


class Prepared:
    """A transaction of a program that has prepared it, and is gone.

    Attributes:
        name: its transactional id.
        earlier: the state of the transaction before, which was committed.
        state: its state.
    """

    def __init__(self, scene: Scene, name: str) -> None:
        self.name = name
        self._producer = scene.client.transactional_producer(name, two_phase_commit=True)
        self._producer.init()
        self.earlier = self._prepare(b"earlier")
        self._producer.commit()
        self.state = self._prepare(b"prepared")
        self.txn_id = TxnID.parse(self.state.rpartition("/")[2])

    def _prepare(self, value: bytes) -> str:
        self._producer.begin()
        self._producer.send("kept.in.a.database", value, partition=1)
        return str(self._producer.prepare())


def status(client: blocking.Client, txn_id: TxnID) -> TransactionStatus:
    return client.admin.transactions.describe(txn_id).status


def decide(page: Page, scene: Scene, one: Prepared) -> None:
    """Open the question what the database says."""
    page.goto(scene.path("/hanging"))
    found = row(page, "held", one.name)
    expect(found).to_contain_text("two-phase: may be prepared")
    found.get_by_role("button").click()
    expect(page.locator("#decide")).to_contain_text(f"transactional_id = '{one.name}'")


def test_a_transaction_is_committed_as_its_database_says(scene: Scene, page: Page) -> None:
    one = Prepared(scene, "billing-1")
    decide(page, scene, one)
    page.get_by_label("The text that it has").fill(f" {one.state} ")
    page.get_by_role("button", name="What will happen?").click()
    dialog = page.locator("#confirm")
    expect(dialog).to_contain_text(f"Commit {one.txn_id} of billing-1?")
    expect(dialog).to_contain_text("Readers will see what it has written to kept.in.a.database / 1")
    expect(dialog).to_contain_text("it is fenced")
    expect(dialog.get_by_role("button", name="Leave it open")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    assert status(scene.client, one.txn_id) is TransactionStatus.OPEN
    row(page, "held", one.name).get_by_role("button").click()
    page.get_by_label("The text that it has").fill(one.state)
    page.get_by_role("button", name="What will happen?").click()
    dialog.get_by_role("button", name="Commit it").click()
    expect(page.locator("#done")).to_have_text(f"{one.txn_id} is committed.")
    expect(row(page, "held", one.name)).to_have_count(0)
    assert status(scene.client, one.txn_id) is TransactionStatus.COMMITTED
    values = [found.value for found in scene.client.read("kept.in.a.database", 1)]
    assert values.count(b"prepared") == 1
    assert "completes" in scene.console_log()


def test_a_transaction_that_its_database_does_not_name_is_aborted(scene: Scene, page: Page) -> None:
    one, other = Prepared(scene, "billing-2"), Prepared(scene, "billing-3")
    decide(page, scene, one)
    problem = page.locator("#decide-problem")
    ask = page.get_by_role("button", name="What will happen?")
    ask.click()
    expect(problem).to_contain_text("say what the table magnetar_transaction_state has")
    for text, refusal in (
        ("nonsense", "not the state of a prepared transaction"),
        # Of another program: it does not tell how this one ends.
        (other.state, "is not a state of billing-2"),
        (other.earlier, "is not a state of billing-2"),
        (f"1/9/0/{one.txn_id}", "is mistyped"),
        ("1/0/0/0:1:99999999", "this cluster does not know"),
    ):
        page.get_by_label("The text that it has").fill(text)
        ask.click()
        expect(problem).to_contain_text(refusal)
    page.get_by_label("The text that it has").fill(one.earlier)
    ask.click()
    dialog = page.locator("#confirm")
    expect(dialog).to_contain_text(f"Abort {one.txn_id} of billing-2?")
    expect(dialog).to_contain_text("an earlier transaction, and not this one")
    expect(dialog).to_contain_text("If the database has committed it after all")
    dialog.get_by_role("button", name="Abort it").click()
    expect(page.locator("#done")).to_contain_text(f"{one.txn_id} is aborted")
    assert status(scene.client, one.txn_id) is TransactionStatus.ABORTED
    # The database of the other program has no row.
    decide(page, scene, other)
    page.get_by_label("It has no row").check()
    ask.click()
    expect(dialog).to_contain_text("names no transaction of this id")
    dialog.get_by_role("button", name="Abort it").click()
    expect(page.locator("#done")).to_contain_text(f"{other.txn_id} is aborted")
    assert status(scene.client, other.txn_id) is TransactionStatus.ABORTED


def test_the_open_transaction_of_a_transactional_id_is_terminated(scene: Scene, page: Page) -> None:
    producer = scene.client.transactional_producer("importer <b>1</b>")
    producer.init()
    producer.begin()
    producer.send("invoices", b"x", partition=1)
    page.goto(scene.path("/hanging"))
    found = row(page, "held", "importer <b>1</b>")
    found.get_by_role("button", name="Terminate").click()
    dialog = page.locator("#confirm")
    expect(dialog).to_contain_text("All that it has written is discarded: invoices / 1.")
    expect(dialog).not_to_contain_text("If the database")
    dialog.get_by_role("button", name="Abort it").click()
    expect(page.locator("#done")).to_contain_text("the program of importer <b>1</b> is fenced")
    expect(found).to_have_count(0)
    with pytest.raises(ProducerFenced):
        producer.commit()


def test_nothing_hangs(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/hanging"))
    expect(page.locator("#search-told")).to_have_text("Nothing has been searched yet.")
    page.get_by_label("Open for at least").select_option("0")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("#search-told")).to_have_text("Nothing hangs in 3 topics.")
    page.get_by_label("Topic").fill("nowhere")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("#search-problem")).to_contain_text("TopicNotFound")


class HangingScene(Scene):
    """A scene in which a transaction hangs: its coordinator has lost its store."""

    def __enter__(self) -> HangingScene:
        super().__enter__()
        self.servers.kill(COORDINATOR)
        shutil.rmtree(self.directory / COORDINATOR)
        self.servers.start(COORDINATOR)
        return self


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HangingScene]:
    with HangingScene(tmp_path_factory.mktemp("hanging")) as made:
        yield made


def test_a_hanging_transaction_is_found_and_aborted(hanging: HangingScene, page: Page) -> None:
    scene, txn_id = hanging, str(hanging.open.txn_id)
    page.goto(scene.path("/hanging"))
    page.get_by_label("Open for at least").select_option("3600000")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("#search-told")).to_have_text("Nothing hangs in 3 topics.")
    page.get_by_label("Open for at least").select_option("0")
    page.get_by_role("button", name="Search", exact=True).click()
    # What is open at the partition, at the subscription, and what was prepared.
    expect(page.locator("#search-told")).to_have_text("3 places where a transaction hangs.")
    written = row(page, "hanging", "invoices / 0")
    expect(written).to_contain_text(txn_id)
    expect(written).to_contain_text("its coordinator")
    expect(row(page, "hanging", "acks of bill")).to_contain_text("1 acknowledgement")
    written.get_by_role("button", name="Abort").click()
    dialog = page.locator("#confirm")
    expect(dialog).to_contain_text("1 message, is discarded. No reader has seen it.")
    dialog.get_by_role("button", name="Abort it there").click()
    expect(page.locator("#done")).to_contain_text(f"{txn_id} is aborted at invoices, partition 0.")
    expect(page.locator("#search-told")).to_have_text("2 places where a transaction hangs.")
    row(page, "hanging", "acks of bill").get_by_role("button", name="Abort").click()
    expect(dialog).to_contain_text("are delivered again")
    dialog.get_by_role("button", name="Abort it there").click()
    expect(page.locator("#search-told")).to_have_text("1 place where a transaction hangs.")
    page.goto(scene.path("/topic", name="invoices"))
    expect(page.locator("#sidecar-empty")).to_be_visible()


def test_without_the_option_there_are_commands_and_no_buttons(
    hanging: HangingScene, browser: Browser, tmp_path: Path
) -> None:
    with (
        running_console(hanging.servers.address, tmp_path / "log") as console,
        watched(browser) as opened,
    ):
        page = opened.page
        page.goto(f"{console}/hanging")
        expect(page.locator("#held-empty")).to_be_visible()
        page.get_by_label("Open for at least").select_option("0")
        page.get_by_role("button", name="Search", exact=True).click()
        found = row(page, "hanging", "kept.in.a.database / 0")
        found.get_by_text("command for an administrator").click()
        expect(found).to_contain_text("--topic kept.in.a.database --partition 0 --start-offset 0")
        assert found.get_by_role("button").count() == 0
        assert page.locator("dialog").count() == 0
