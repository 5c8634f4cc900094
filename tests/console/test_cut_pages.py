"""The page of cuts: take one, see its token, and read at it."""

from __future__ import annotations

import pytest

from magnetar import Cut

pytest.importorskip("playwright", reason="Playwright is not installed")

from playwright.sync_api import Page, expect
from tests.console.browsing import CHROMIUM
from tests.console.scene import MARKUP, Scene, row

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]


def test_a_cut_is_taken_and_read(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/cuts"))
    button = page.get_by_role("button", name="Choose topics first")
    expect(button).to_be_disabled()
    page.get_by_label("orders").check()
    page.get_by_label("invoices").check()
    page.get_by_role("button", name="Take a cut of 2 topics").click()
    expect(page.locator("#cut-facts")).to_contain_text("invoices, orders")
    token = page.locator("#cut-token").input_value()
    assert set(Cut.parse(token).topics) == {"orders", "invoices"}
    with scene.client.transaction() as txn:
        txn.send("orders", b"after the cut", partition=0)
    page.get_by_role("button", name="Read orders / 0 at the cut").click()
    expect(row(page, "messages", '"order": 1')).to_contain_text("plain")
    expect(row(page, "messages", MARKUP)).to_have_count(1)
    expect(row(page, "messages", "after the cut")).to_have_count(0)
    expect(page.locator("#reading-told")).to_contain_text("1 message has come")
    page.get_by_role("button", name="Read invoices / 0 at the cut").click()
    expect(row(page, "messages", "seen by all")).to_contain_text(f"committed by {scene.committed}")
    # The open transaction is not in it.
    expect(row(page, "messages", "not seen yet")).to_have_count(0)
    # The token is in the address.
    page.reload()
    expect(page.locator("#cut-token")).to_have_value(token)


def test_a_token_is_opened_and_a_damaged_one_refused(scene: Scene, page: Page) -> None:
    page.goto(scene.path("/cuts"))
    token = str(scene.client.cut("orders"))
    opening = page.get_by_label("Its token, as magnetar cut prints it")
    opening.fill(token[:-3])
    page.get_by_role("button", name="Open it").click()
    expect(page.locator("#cut-problem")).to_contain_text("InvalidArgument")
    expect(page.locator("#cut")).to_be_hidden()
    opening.fill(f"\n{token}\n")
    page.get_by_role("button", name="Open it").click()
    expect(page.locator("#cut-facts")).to_contain_text("orders")
    expect(page.locator("#cut-problem")).to_be_empty()


def test_earlier_messages_of_a_cut(scene: Scene, page: Page) -> None:
    scene.client.admin.topics.create("many", exist_ok=True)
    with scene.client.transaction() as txn:
        for number in range(120):
            txn.send("many", b"message %03d" % number)
    page.goto(f"{scene.path('/cuts')}#{scene.client.cut('many')}")
    page.get_by_role("button", name="Read many / 0 at the cut").click()
    rows = page.locator("#messages tbody tr")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("message 119")
    expect(page.locator("#reading-told")).to_contain_text("Nothing has come since")
    for count in (100, 120):
        page.get_by_role("button", name="Earlier messages").click()
        expect(rows).to_have_count(count)
    expect(rows.last).to_contain_text("message 000")
    expect(page.get_by_role("button", name="Earlier messages")).to_be_hidden()


def test_a_cut_of_a_topic_that_was_deleted_since(scene: Scene, page: Page) -> None:
    scene.client.admin.topics.create("brief")
    cut = scene.client.cut("brief")
    with scene.client.transaction() as txn:
        txn.send("brief", b"x")
    later = scene.client.cut("brief")
    page.goto(f"{scene.path('/cuts')}#{cut}")
    expect(row(page, "cut-partitions", "brief / 0")).to_contain_text("nothing to read")
    page.goto(scene.path("/topics"))
    page.goto(f"{scene.path('/cuts')}#{later}")
    scene.client.admin.topics.delete("brief")
    page.get_by_role("button", name="Read brief / 0 at the cut").click()
    expect(page.locator("#reading-problem")).to_contain_text("TopicNotFound")
