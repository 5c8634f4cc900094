"""How long the command line waits for a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.virtual_time import run, time_passes

from magnetar_cli.with_client import FIND_ATTEMPTS, FIND_PERIOD_S, FIND_TIMEOUT_S, _find
from magnetar_core.transport.transport import LinkClosed


class Transport:
    """Attempts take so long and fail, as those at a process that hangs."""

    def __init__(self, attempt_s: float) -> None:
        self.attempt_s = attempt_s
        self.attempts = 0

    async def connect(self, address: str, *_: object) -> Any:
        self.attempts += 1
        await time_passes(self.attempt_s)
        raise LinkClosed(f"attempt {self.attempts} at {address} failed")


def waited_s(transport: Transport) -> tuple[float, str]:
    async def scenario() -> tuple[float, str]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(LinkClosed) as raised:
            await _find(transport, ("broker:1",))  # type: ignore[arg-type]
        return loop.time() - began_s, str(raised.value)

    return run(scenario())


@pytest.mark.parametrize("attempt_s", [5.0, 3.0, 60.0])
def test_a_broker_that_hangs_is_given_up_after_one_deadline(attempt_s: float) -> None:
    """Five attempts had five seconds each, and the message told of one."""
    seconds, text = waited_s(Transport(attempt_s))
    assert seconds == pytest.approx(FIND_TIMEOUT_S)
    assert text == f"broker:1 did not answer within {FIND_TIMEOUT_S * 1_000:.0f} ms"


def test_where_nobody_listens_a_few_attempts_are_made() -> None:
    transport = Transport(0.0)
    seconds, text = waited_s(transport)
    assert transport.attempts == FIND_ATTEMPTS
    assert seconds == pytest.approx((FIND_ATTEMPTS - 1) * FIND_PERIOD_S)
    assert text == f"attempt {FIND_ATTEMPTS} at broker:1 failed"


def test_one_broker_that_listens_is_enough_and_the_others_are_not_waited_for() -> None:
    class OneOfThem(Transport):
        async def connect(self, address: str, *rest: object) -> Any:
            if address != "live:1":
                return await super().connect(address, *rest)
            return ClosedLink()

    class ClosedLink:
        def close(self) -> None:
            return

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for addresses in (("dead:1", "live:1"), ("live:1", "dead:1")):
            await _find(OneOfThem(60.0), addresses)  # type: ignore[arg-type]
        with pytest.raises(LinkClosed, match="dead:1 and dead:2 did not answer within 5000 ms"):
            await _find(OneOfThem(60.0), ("dead:1", "dead:2"))  # type: ignore[arg-type]
        with pytest.raises(LinkClosed, match=r"at dead:1 failed; .* at dead:2 failed"):
            await _find(OneOfThem(0.0), ("dead:1", "dead:2"))  # type: ignore[arg-type]
        return loop.time() - began_s

    assert run(scenario()) == pytest.approx(FIND_TIMEOUT_S + (FIND_ATTEMPTS - 1) * FIND_PERIOD_S)
