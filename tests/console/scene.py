"""Servers, a console and open transactions, for pages in a real browser."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Page, expect
from tests.console.running import running_console
from tests.console.shop import Shop
from tests.system.processes import BROKER, COORDINATOR, Servers

from magnetar import ClientConfig, blocking

MARKUP = "<img src=x onerror=alert(1)>"
# A page has what is new within a second or two; a busy machine takes longer.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)


class Scene(Shop):
    """Servers, a console, and transactions that are open."""

    def __init__(self, directory: Path) -> None:
        self.servers = Servers(
            directory,
            {"MAGNETAR_TWO_PHASE_COMMIT_ENABLED": "1"},
            {BROKER: 1, COORDINATOR: 1},
        )
        self.directory = directory
        self._stack = ExitStack()
        self.console = ""

    def __enter__(self) -> Scene:
        self._stack.enter_context(self.servers.running())
        log = self.directory / "console.log"
        self.console = self._stack.enter_context(
            running_console(self.servers.address, log, "--allow-actions")
        )
        config = ClientConfig(client_name="shop-api")
        self.client = self._stack.enter_context(
            blocking.connect(self.servers.address, config=config)
        )
        self.make_topics()
        orders = self.client.create_producer("orders")
        orders.send(b'{"order": 1}', key=b"customer-7", partition=0)
        orders.send(MARKUP.encode(), key=MARKUP.encode(), partition=0)
        self.trade(open_partition=0)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def console_log(self) -> str:
        return (self.directory / "console.log").read_text()

    def path(self, path: str, **parameters: Any) -> str:
        return f"{self.console}{path}" + (f"?{urlencode(parameters)}" if parameters else "")


def row(page: Page, table: str, text: str) -> Any:
    return page.locator(f"#{table} tbody tr").filter(has_text=text)
