"""`magnetar top` shows what the servers allow its token, and no action goes further."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("textual", reason="Textual is not installed")

from tests.console.terminal import sees
from tests.console.test_served import Secured, secured  # noqa: F401

import magnetar
from magnetar import TransactionStatus
from magnetar_console.terminal.app import Top
from magnetar_console.terminal.running import new_hub
from magnetar_core.clock import SystemClock
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.security.link_security import LinkSecurity


def test_a_reader_sees_less_and_aborts_nothing(secured: Secured) -> None:  # noqa: F811
    async def work() -> None:
        clock = SystemClock()
        hub = new_hub(
            [secured.address],
            lambda: GrpcTransport(LinkSecurity(None, secured.token("reader"))),
            clock,
            period_s=0.2,
        )
        app = Top(
            hub,
            clock,
            brokers=secured.address,
            viewer="a reader",
            allow_actions=True,
            period_s=0.2,
        )
        async with await magnetar.connect(secured.address, token=secured.token("admin")) as client:
            for topic in ("open-shown", "closed-hidden"):
                await client.admin.topics.create(topic, exist_ok=True)
            txn = await client.begin_transaction()
            await txn.send("open-shown", b"x")
            async with app.run_test(size=(120, 24)) as pilot:
                await sees(pilot, str(txn.txn_id), "open-shown / 0")
                await pilot.press("slash", *str(txn.txn_id), "enter", "a")
                await sees(pilot, "All that it has written is discarded:", "y  abort it")
                await pilot.press("y")
                await sees(pilot, "reader does not own transaction", "y  abort it")
                await pilot.press("n", "escape", "3")
                found = await sees(pilot, "open-shown")
                assert "closed-hidden" not in found
            described = await client.admin.transactions.describe(txn.txn_id)
            assert described.status is TransactionStatus.OPEN
            assert app.done == []
            await txn.abort()
        await hub.close()

    asyncio.run(work())
