"""One look serves all viewers; what fails is shown with its age; there are limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, cast

import pytest
from tests.waiting import turns, until

from magnetar import AuthenticationFailed, Client, LogUnavailable
from magnetar_console.channel import Channel
from magnetar_console.hub import Hub
from magnetar_console.looks.view import View
from magnetar_console.seen import Seen
from magnetar_console.viewers import TooManyViewers, Viewers
from magnetar_console.web.app import PIECE_CHARACTERS, in_pieces
from magnetar_core.clock import SystemClock


class FakeLook:
    """Answers with a number that rises, or fails."""

    def __init__(self) -> None:
        self.period_s = 0.001
        self.pause_factor = 4.0
        self.count = 0
        self.closed = 0
        self.error: Exception | None = None

    async def look(self, client: Client) -> Seen:
        self.count += 1
        if self.error is not None:
            raise self.error
        return Seen({"t": {"a": {"n": self.count}}})

    async def close(self) -> None:
        self.closed += 1


class FakeConnection:
    def __init__(self) -> None:
        self.errors: list[Exception] = []

    async def client(self) -> Client:
        return cast(Client, None)

    async def failed(self, error: Exception) -> None:
        self.errors.append(error)


def channel(look: FakeLook, connection: FakeConnection | None = None) -> Channel:
    return Channel(look, connection or FakeConnection(), SystemClock(), "run")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def beats(events: AsyncGenerator[str, None], wanted: Callable[[Any], bool]) -> list[str]:
    """Read events up to the first beat that is as it should be."""
    read = []
    async for event in events:
        read.append(event)
        if event.startswith("event: beat") and wanted(json.loads(event.partition("data: ")[2])):
            break
    return read


def anything(_: Any) -> bool:
    return True


def test_any_number_of_viewers_costs_one_look() -> None:
    async def work() -> None:
        look = FakeLook()
        shared = channel(look)
        streams = [shared.events() for _ in range(50)]
        looks = [await beats(one, anything) for one in streams]
        assert all(one[0].startswith("event: state") for one in looks)
        # 50 viewers and one beat each: with a look for each viewer there would be 50.
        assert shared.viewers == 50
        before = look.count
        await asyncio.gather(*(beats(one, anything) for one in streams))
        assert look.count - before <= 3
        for one in streams:
            await one.aclose()
        assert (shared.viewers, look.closed) == (0, 1)

    run(work())


def test_a_viewer_who_comes_while_the_last_one_leaves_keeps_the_look() -> None:
    """The look gave up what it held in the middle of the new viewer's first look."""

    async def work() -> None:
        look = FakeLook()
        shared = channel(look)
        first, second = shared.events(), shared.events()
        await beats(first, anything)
        leaving = asyncio.create_task(first.aclose())
        await turns()
        assert shared.viewers == 0
        await asyncio.gather(leaving, beats(second, anything))
        assert (shared.viewers, look.closed) == (1, 0)
        await second.aclose()
        assert look.closed == 1

    run(work())


def test_without_viewers_nothing_is_asked() -> None:
    async def work() -> None:
        look = FakeLook()
        shared = channel(look)
        stream = shared.events()
        await beats(stream, anything)
        await stream.aclose()
        count = look.count
        # Whatever still ran would run now.
        for _ in range(100):
            await asyncio.to_thread(lambda: None)
        assert look.count == count

    run(work())


def test_what_was_seen_stays_with_its_age_while_servers_are_away() -> None:
    async def work() -> None:
        look, connection = FakeLook(), FakeConnection()
        stream = channel(look, connection).events()
        await beats(stream, anything)
        look.error = LogUnavailable("the broker does not answer")
        read = await beats(stream, lambda told: bool(told["error"]))
        told = json.loads(read[-1].partition("data: ")[2])
        assert told["error"] == "LogUnavailable: the broker does not answer"
        assert 0 < told["as_of_ms"] <= told["now_ms"]
        assert connection.errors[0] is look.error
        look.error = None
        back = await beats(stream, lambda told: not told["error"])
        assert any(one.startswith("event: change") for one in back)
        await stream.aclose()

    run(work())


def test_a_fault_of_ours_is_shown_and_does_not_end_the_view(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        look = FakeLook()
        look.error = ZeroDivisionError("oops")
        stream = channel(look).events()
        read = await beats(stream, lambda told: bool(told["error"]))
        assert "the console has a fault" in read[-1]
        look.error = None
        await beats(stream, lambda told: not told["error"])
        await stream.aclose()

    run(work())
    assert "this is a fault of the console" in caplog.text


def test_a_look_that_hangs_is_given_up() -> None:
    class HangingLook(FakeLook):
        async def look(self, client: Client) -> Seen:
            self.count += 1
            if self.count == 1:
                await asyncio.Event().wait()
            return Seen({"t": {"a": {"n": self.count}}})

    async def work() -> None:
        hanging = Channel(HangingLook(), FakeConnection(), SystemClock(), "run", look_s_max=0.01)
        stream = hanging.events()
        read = await beats(stream, lambda told: bool(told["error"]))
        assert "there was no answer within 0.01 s" in read[-1]
        await beats(stream, lambda told: not told["error"])
        await stream.aclose()

    run(work())


def test_a_viewer_in_this_process_gets_pictures_and_can_ask_for_the_next() -> None:
    async def work() -> None:
        look = FakeLook()
        look.period_s = 3_600.0
        shared = channel(look)
        pictures = shared.pictures()
        first = await anext(pictures)
        assert first.tables == {"t": {"a": {"n": 1}}}
        assert first.as_of_ms > 0
        look.error = LogUnavailable("the broker does not answer")
        shared.look_soon()
        second = await anext(pictures)
        # The rows stay, with their time.
        assert (second.tables, second.as_of_ms) == (first.tables, first.as_of_ms)
        assert "the broker does not answer" in second.error
        await pictures.aclose()
        assert (shared.viewers, look.closed) == (0, 1)

    run(work())


def test_a_viewer_that_comes_back_gets_the_changes_since() -> None:
    async def work() -> None:
        look = FakeLook()
        shared = channel(look)
        first = shared.events()
        read = await beats(first, anything)
        number = next(one for one in read if one.startswith("event: state")).split("id: ")[1]
        second = shared.events(number.split("\n")[0])
        again = await beats(second, anything)
        assert not any(one.startswith("event: state") for one in again)
        other = shared.events("another-run.1")
        assert (await beats(other, anything))[0].startswith("event: state")
        for one in (first, second, other):
            await one.aclose()

    run(work())


def viewers(viewers_max: int = 100, idle_s: float = 60.0) -> tuple[Viewers, list[str | None]]:
    connected: list[str | None] = []

    async def connect(token: str | None) -> Client:
        connected.append(token)
        raise LogUnavailable("no broker answers")

    def new_transport(token: str | None) -> Any:
        raise AssertionError("not needed")

    made = Viewers(
        connect, new_transport, SystemClock(), "run", viewers_max=viewers_max, idle_s=idle_s
    )
    return made, connected


def test_viewers_are_limited() -> None:
    async def work() -> None:
        all_viewers, _ = viewers(viewers_max=2)
        streams = [all_viewers.events(None, View("groups")) for _ in range(2)]
        for one in streams:
            assert await anext(one)
        with pytest.raises(TooManyViewers, match="2 pages are open"):
            all_viewers.events(None, View("groups"))
        await streams[0].aclose()
        third = all_viewers.events(None, View("groups"))
        assert await anext(third)
        for one in (streams[1], third):
            await one.aclose()
        await all_viewers.close()

    run(work())


def test_each_token_has_a_connection_of_its_own() -> None:
    async def work() -> None:
        all_viewers, connected = viewers()
        streams = [
            all_viewers.events(token, View("groups")) for token in (None, "alice", "bob", "alice")
        ]
        for one in streams:
            assert "no broker answers" in await anext(one) + await anext(one)
        assert {*connected} == {None, "alice", "bob"}
        for one in streams:
            await one.aclose()
        await all_viewers.close()

    run(work())


def test_a_hub_without_viewers_is_closed() -> None:
    async def work() -> None:
        all_viewers, _ = viewers(idle_s=0.01)
        first = all_viewers.hub(None)
        await until(lambda: all_viewers.hub(None) is not first)
        await all_viewers.close()

    run(work())


def test_events_end_with_the_console() -> None:
    async def work() -> None:
        all_viewers, _ = viewers()
        stream = all_viewers.events(None, View("groups"))
        assert await anext(stream)

        async def rest() -> None:
            async for _ in stream:
                pass

        reading = asyncio.create_task(rest())
        await all_viewers.close()
        await reading

    run(work())


def test_refused_credentials_are_tried_anew() -> None:
    async def work() -> None:
        closed: list[bool] = []

        class FakeClient:
            async def close(self) -> None:
                closed.append(True)

        async def connect() -> Client:
            return cast(Client, FakeClient())

        hub = Hub(connect, lambda: cast(Any, None), SystemClock(), "run")
        first = await hub.client()
        await hub.failed(LogUnavailable("away"))
        assert await hub.client() is first
        await hub.failed(AuthenticationFailed("the token has expired"))
        assert await hub.client() is not first
        assert closed == [True]
        await hub.close()

    run(work())


def test_long_events_leave_in_pieces_and_end_with_the_viewer() -> None:
    """The console would hold the whole state once more for each viewer that reads slowly."""
    ended = []

    async def events() -> AsyncGenerator[str, None]:
        try:
            yield "e" * (2 * PIECE_CHARACTERS + 1)
            yield "short"
        finally:
            ended.append(True)

    async def work() -> None:
        pieces = [piece async for piece in in_pieces(events())]
        assert [len(one) for one in pieces] == [PIECE_CHARACTERS, PIECE_CHARACTERS, 1, 5]
        left_early = in_pieces(events())
        await anext(left_early)
        await left_early.aclose()
        assert ended == [True, True]

    run(work())
