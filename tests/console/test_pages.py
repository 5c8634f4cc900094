"""Each view in a real browser, beside real servers, while transactions run."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.running_cluster import PATIENCE_S as UP_PATIENCE_S
from tests.cli.running_cluster import skip_without_programs, up
from tests.system.processes import BROKER, COORDINATOR
from tests.waiting import wait_until

from magnetar import ClientConfig, TransactionStatus, blocking

pytest.importorskip("playwright", reason="Playwright is not installed")

from playwright.sync_api import Browser, Error, Page, expect
from tests.console.browsing import CHROMIUM, axe_source, watched
from tests.console.running import running_console
from tests.console.scene import MARKUP, Scene, row

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]

FOREIGN_STYLE = """
const style = document.createElement('style');
style.textContent = 'body { color: red }';
document.head.append(style);
"""


def test_open_transactions_and_whose_they_are(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/"))
    expect(page.locator("#live")).to_have_text("live")
    found = row(page, "transactions", str(scene.open.txn_id))
    expect(found).to_contain_text("shop-api")
    expect(found).to_contain_text("at 127.0.0.1")
    expect(found).to_contain_text("of 10 min 0 s")
    expect(found).to_contain_text("invoices / 0")
    expect(found).to_contain_text("acks of bill: orders / 0")
    prepared = row(page, "transactions", "shop-1")
    expect(prepared).to_contain_text("two-phase: may be prepared")
    expect(prepared).to_contain_text("look into its database")
    expect(prepared).to_contain_text("never expires")
    expect(row(page, "ended", scene.committed)).to_contain_text("committed")


def test_a_transaction_comes_and_goes_without_a_reload(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/"))
    expect(page.locator("#transactions tbody tr")).not_to_have_count(0)
    txn = scene.client.begin_transaction()
    name = str(txn.txn_id)
    expect(row(page, "transactions", name)).to_contain_text("nothing written yet")
    txn.send("invoices", b"x", partition=1)
    expect(row(page, "transactions", name)).to_contain_text("invoices / 1")
    txn.commit()
    expect(row(page, "transactions", name)).to_have_count(0)
    ended = row(page, "ended", name)
    expect(ended).to_contain_text("committed")
    # What its coordinator no longer tells.
    expect(ended).to_contain_text("shop-api")
    expect(ended).to_contain_text("invoices / 1")


def test_filters(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/"))
    expect(row(page, "transactions", "shop-1")).to_have_count(1)
    page.get_by_label("State").select_option("PREPARED")
    expect(page.locator("#transactions tbody tr")).to_have_count(1)
    page.get_by_label("State").select_option("")
    page.get_by_label("Filter").fill("BILL")
    expect(page.locator("#transactions tbody tr")).to_have_count(1)
    expect(row(page, "transactions", str(scene.open.txn_id))).to_have_count(1)


def test_one_transaction(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/transaction", id=scene.open.txn_id))
    expect(page.locator("#facts")).to_contain_text("shop-api")
    expect(page.locator("#facts")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d (CET|CEST)"))
    written = row(page, "participants", "invoices / 0")
    expect(written).to_contain_text("after it was begun")
    expect(written).to_contain_text("1 message")
    expect(row(page, "participants", "acks of bill")).to_contain_text("open")
    timeline = page.locator("#timeline")
    expect(timeline).to_contain_text("deadline")
    expect(timeline).to_contain_text("now, ")
    expect(timeline.locator(".lane")).to_have_count(3)


def test_a_transaction_of_which_only_a_database_knows_the_end(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/"))
    row(page, "transactions", "shop-1").get_by_role("link").click()
    advice = page.locator("#advice")
    expect(advice).to_contain_text("look into the database")
    expect(advice).to_contain_text(f"complete shop-1 --state '{scene.prepared_state}'")
    expect(page.locator("#timeline")).to_contain_text("it never expires")
    # No button here ends it: a click could tear the database and the topic apart.
    expect(page.locator("#abort")).to_be_hidden()
    advice.get_by_role("link", name="do so here").click()
    expect(row(page, "held", "shop-1")).to_contain_text("two-phase: may be prepared")


def test_what_has_ended_and_was_not_watched_is_told_by_its_coordinator(
    scene: Scene, page: Page
) -> None:
    page.goto(scene.path("/transaction", id=scene.committed))
    expect(page.locator("#state")).to_have_text("committed")
    ended = row(page, "participants", "invoices / 0")
    expect(ended).to_contain_text(re.compile(r"committed.*after it was begun"))
    expect(ended).to_contain_text("1 message")
    expect(page.locator("#facts")).to_contain_text("by its client")
    expect(page.locator("#timeline-note")).to_contain_text("decided: commit")
    page.goto(scene.path("/transaction", id="0:1:99999999"))
    expect(page.locator("#advice")).to_contain_text("does not know this transaction")


def test_a_transaction_that_ends_while_it_is_watched(scene: Scene, page: Page) -> None:
    txn = scene.client.begin_transaction()
    txn.send("invoices", b"x", partition=1)
    page.goto(scene.path("/transaction", id=txn.txn_id))
    expect(row(page, "participants", "invoices / 1")).to_contain_text("after it was begun")
    txn.commit()
    expect(page.locator("#state")).to_have_text("committed")
    expect(row(page, "participants", "invoices / 1")).to_contain_text("committed")
    expect(page.locator("#timeline")).to_contain_text("committed after")
    expect(page.locator("#facts")).to_contain_text("shop-api")


def test_topics(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/topics"))
    orders = row(page, "topics", "orders")
    expect(orders.get_by_role("cell").nth(1)).to_have_text("2")
    expect(orders.get_by_role("cell").nth(2)).to_have_text("2")
    page.get_by_role("link", name="orders", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Topic orders")


def test_what_readers_see_and_do_not_see_yet(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/topic", name="invoices", partition=0))
    waiting = row(page, "sidecar", "not seen yet")
    expect(waiting).to_contain_text(str(scene.open.txn_id))
    seen = row(page, "messages", "seen by all")
    expect(seen).to_contain_text(f"committed by {scene.committed}")
    expect(row(page, "messages", "not seen yet")).to_have_count(0)
    expect(page.locator("#strip span")).to_have_count(1)
    expect(page.locator("#sidecar-strip span")).to_have_count(1)
    expect(row(page, "partitions", "partition 0")).to_contain_text(str(scene.open.txn_id))


def test_what_users_typed_is_text(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/topic", name="orders", partition=0))
    markup = row(page, "messages", MARKUP)
    expect(markup).to_have_count(1)
    expect(markup).to_contain_text("plain")
    assert page.locator("#messages img").count() == 0
    page.goto(scene.path("/topic", name=f"{MARKUP}"))
    expect(page.get_by_role("heading", level=1)).to_contain_text(MARKUP)
    expect(page.locator("#problems")).to_contain_text("TopicNotFound")
    assert page.locator("main img").count() == 0


def test_subscriptions_and_groups(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/groups"))
    bill = row(page, "subscriptions", "bill").filter(has_text="1 message")
    expect(bill).to_contain_text(str(scene.open.txn_id))
    group = row(page, "groups", "billing")
    expect(group).to_contain_text("stable")
    group.get_by_role("link").click()
    expect(row(page, "members", "shop-api")).to_contain_text("orders")
    expect(row(page, "partitions", "orders / 1")).to_contain_text("shop-api")


def test_a_rebalance_is_shown(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/group", name="billing"))
    expect(page.locator("#members tbody tr")).to_have_count(1)
    other = ClientConfig(client_name="another-worker")
    with blocking.connect(scene.servers.address, config=other) as client:
        joined = client.consumer_group("billing", "orders", initial_position="earliest")
        stop = threading.Event()

        def receive() -> None:
            while not stop.is_set():
                with suppress(TimeoutError):
                    scene.group.receive(timeout_s=0.1)

        # A member gives its partitions back while it receives.
        receiving = threading.Thread(target=receive)
        receiving.start()
        try:
            expect(page.locator("#members tbody tr")).to_have_count(2)
            expect(row(page, "partitions", "another-worker")).to_have_count(1)
        finally:
            stop.set()
            receiving.join()
            joined.close()


def test_the_cluster(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/cluster"))
    broker = row(page, "servers", scene.servers.address)
    expect(broker).to_contain_text("answers")
    expect(page.locator("#facts")).to_contain_text("2, all answer")
    expect(page.locator("#shards tbody tr")).to_have_count(2)


def test_an_abort_by_button(scene: Scene, page: Page) -> None:
    txn = scene.client.begin_transaction()
    txn.send("invoices", b"will be lost", partition=1)
    page.goto(scene.path("/transaction", id=txn.txn_id))
    page.get_by_role("button", name="Abort…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("invoices / 1")
    expect(dialog).to_contain_text("shop-api at 127.0.0.1")
    # The button that does no harm has the focus.
    expect(dialog.get_by_role("button", name="Leave it open")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert scene.client.admin.transactions.describe(txn.txn_id).status is TransactionStatus.OPEN
    page.get_by_role("button", name="Abort…").click()
    dialog.get_by_role("button", name="Abort it").click()
    expect(page.locator("#state")).to_have_text("aborted")
    assert scene.client.admin.transactions.describe(txn.txn_id).status is TransactionStatus.ABORTED


def test_by_keyboard(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/"))
    expect(row(page, "transactions", "shop-1")).to_have_count(1)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(3):
        page.keyboard.press("Tab")
    # The oldest transaction is the first; the focus stays although the page changes.
    focused = page.evaluate("document.activeElement.dataset.focus")
    assert focused
    txn = scene.client.begin_transaction()
    expect(row(page, "transactions", str(txn.txn_id))).to_have_count(1)
    assert page.evaluate("document.activeElement.dataset.focus") == focused
    txn.abort()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Transaction {focused}")


def test_the_content_policy_holds(scene: Scene, browser: Browser) -> None:
    """The tests above would see a violation: here is one."""
    with watched(browser) as opened:
        opened.page.goto(scene.path("/"))
        opened.check()
        opened.page.evaluate(FOREIGN_STYLE)
        wait_until(opened.violations)
        assert opened.violations()[0].startswith("style-src")
        with pytest.raises(AssertionError):
            opened.check()
        # Markup cannot be made of texts, not even by mistake.
        with pytest.raises(Error, match="TrustedHTML"):
            opened.page.evaluate("document.body.innerHTML = '<b>x</b>'")
        opened.page.evaluate("window.violations = []")
        opened.complaints.clear()


VIEWS = {
    "transactions": ("/", {}),
    "transaction": ("/transaction", {"id": "open"}),
    "topics": ("/topics", {}),
    "topic": ("/topic", {"name": "invoices"}),
    "groups": ("/groups", {}),
    "group": ("/group", {"name": "billing"}),
    "cluster": ("/cluster", {}),
    "hanging": ("/hanging", {}),
    "cuts": ("/cuts", {}),
}


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(scene: Scene, browser: Browser, view: str) -> None:
    source = axe_source()
    if source is None:
        pytest.skip("npm cannot fetch axe-core")
    path, parameters = VIEWS[view]
    named = {
        name: str(scene.open.txn_id) if value == "open" else value
        for name, value in parameters.items()
    }
    # What is loaded for the check is not the console's.
    context = browser.new_context(bypass_csp=True)
    try:
        page = context.new_page()
        page.goto(scene.path(path, **named))
        expect(page.locator("#live")).to_have_text("live")
        page.evaluate(source)
        for scheme, width in (("light", 1_280), ("dark", 1_280), ("light", 390), ("dark", 390)):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            page.set_viewport_size({"width": width, "height": 900})
            expect(page.locator("tbody tr, #take-topics label").first).to_be_visible()
            found = page.evaluate("axe.run().then((told) => told.violations)")
            assert not [
                (one["id"], one["help"], [node["html"][:200] for node in one["nodes"]])
                for one in found
            ]
            # All of it is shown without scrolling to the side.
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        context.close()


def test_servers_that_die_are_shown_as_away(tmp_path: Path, browser: Browser) -> None:
    with Scene(tmp_path) as scene, watched(browser) as opened, watched(browser) as other:
        page, cluster = opened.page, other.page
        page.goto(scene.path("/"))
        cluster.goto(scene.path("/cluster"))
        expect(row(page, "transactions", "shop-1")).to_have_count(1)
        expect(cluster.locator("#facts")).to_contain_text("2, all answer")
        scene.servers.kill(COORDINATOR)
        away = row(cluster, "servers", scene.servers.addresses[COORDINATOR])
        expect(away).to_contain_text("away")
        expect(row(cluster, "events", "coordinator")).to_contain_text("does not answer")
        expect(page.locator("#problems")).to_contain_text("Coordinator 0 does not answer")
        scene.servers.start(COORDINATOR)
        expect(away).to_contain_text("answers")
        expect(row(cluster, "events", "answers again")).to_have_count(1)
        expect(page.locator("#live")).to_have_text("live")
        expect(row(page, "transactions", "shop-1")).to_have_count(1)
        page.goto(scene.path("/topic", name="orders"))
        expect(row(page, "messages", "order")).to_have_count(1)
        scene.servers.kill(BROKER)
        expect(row(cluster, "servers", scene.servers.address)).to_contain_text("away")
        # What was seen stays, with its age.
        expect(page.locator("#live")).to_contain_text("as of")
        expect(page.locator("#problems")).to_contain_text("What you see is as of")
        expect(row(page, "messages", "order")).to_have_count(1)
        scene.servers.start(BROKER)
        expect(page.locator("#live")).to_have_text("live")
        expect(page.locator("#problems")).to_be_empty()


def test_ends_that_are_missing_stand_out(tmp_path: Path, browser: Browser) -> None:
    with Scene(tmp_path) as scene, watched(browser) as opened:
        page = opened.page
        page.goto(scene.path("/transaction", id=scene.open.txn_id))
        written = row(page, "participants", "invoices / 0")
        expect(written).to_contain_text("1 message")
        scene.servers.kill(BROKER)
        scene.open.commit()
        expect(page.locator("#state")).to_have_text("committing")
        expect(page.locator("#facts")).to_contain_text("Decided: commit")
        expect(page.locator("#advice")).to_contain_text("2 participants of 2 have not ended yet")
        expect(written).to_contain_text("has not ended yet")
        # What was seen of it before stays.
        expect(written).to_contain_text("1 message")
        expect(page.locator("#problems")).to_contain_text("its broker does not answer")
        expect(page.locator("#timeline")).to_contain_text("its end is missing")
        scene.servers.start(BROKER)
        expect(page.locator("#state")).to_have_text("committed")
        expect(written).to_contain_text("after it was begun")
        expect(page.locator("#problems")).to_be_empty()
        expect(page.locator("#timeline-note")).to_contain_text("the participant has ended it")


def test_shards_of_a_dead_broker_are_seen_to_move(tmp_path: Path, browser: Browser) -> None:
    skip_without_programs()
    with up(tmp_path, "--console") as cluster, watched(browser) as opened:
        page = opened.page
        addresses = {one["name"]: one["address"] for one in cluster.content["servers"]}
        wait_until(lambda: all(cluster.owners().values()), UP_PATIENCE_S)
        page.goto(f"{addresses['console']}cluster")
        expect(page.locator("#shards tbody tr")).to_have_count(10)
        expect(page.locator("#facts")).to_contain_text("5, all answer")
        victim = cluster.owners()["broker-0"]
        cluster.processes[victim].kill()
        expect(row(page, "servers", addresses[victim])).to_contain_text("away")
        moved = row(page, "events", f"broker-0: from {addresses[victim]}")
        expect(moved.first).to_be_visible()
        expect(row(page, "shards", "broker-0")).not_to_contain_text(addresses[victim])


SHARDS_MOVE = re.compile(r"\d+ shards? will move")


def test_a_server_is_drained_by_button(tmp_path: Path, browser: Browser) -> None:
    skip_without_programs()
    log = tmp_path / "console"
    with up(tmp_path) as cluster:
        addresses = {one["name"]: one["address"] for one in cluster.content["servers"]}
        wait_until(lambda: all(cluster.owners().values()), UP_PATIENCE_S)
        with (
            running_console(addresses["broker-a"], log, "--allow-actions") as site,
            watched(browser) as opened,
        ):
            page = opened.page
            victim = cluster.owners()["broker-0"]
            has = [name for name, member in cluster.owners().items() if member == victim]
            page.goto(f"{site}/cluster")
            server = row(page, "servers", addresses[victim])
            expect(server).to_contain_text(re.compile(r"silent at \S+ s, over at \S+ s"))
            # Looked at, and left as it is.
            page.get_by_role("button", name=f"drain {victim}", exact=True).click()
            dialog = page.locator("#confirm")
            # Others may move as well, where that evens shards out.
            expect(dialog).to_contain_text(SHARDS_MOVE)
            for shard in has:
                expect(dialog).to_contain_text(f"{shard}: from {victim} to broker-")
            dialog.get_by_role("button", name="Leave it").click()
            expect(dialog).not_to_be_visible()
            page.get_by_role("button", name=f"drain {victim}", exact=True).click()
            expect(dialog).to_contain_text(SHARDS_MOVE)
            dialog.get_by_role("button", name="Drain it").click()
            expect(dialog).not_to_be_visible()
            expect(server).to_contain_text("draining")
            expect(row(page, "events", f"{victim} gives up its shards").first).to_be_visible()
            wait_until(lambda: victim not in cluster.owners().values(), UP_PATIENCE_S)
            expect(server).to_contain_text("none")
            page.screenshot(path=tmp_path / "drained.png", full_page=True)
            page.get_by_role("button", name=f"end the drain of {victim}").click()
            expect(dialog).to_contain_text("It may have shards again")
            dialog.get_by_role("button", name="End the drain").click()
            expect(row(page, "events", f"{victim} may have shards again").first).to_be_visible()
            page.get_by_role("button", name="Rebalance…").click()
            expect(dialog).to_contain_text("All pins of shards are taken back")
            dialog.get_by_role("button", name="Rebalance").click()
            expect(dialog).not_to_be_visible()
    assert f"asks to drain broker {victim}" in log.read_text()
