"""Links to names: they go where a shard is, and end when it is elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.cluster.views import view
from tests.waiting import turns

from magnetar_cluster.cluster_transport import ClusterTransport
from magnetar_cluster.directory.view import View
from magnetar_cluster.owners_book import OwnersBook
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.transport import LinkClosed


class FakeLink:
    def __init__(self, address: str, on_closed: Callable[[], None]) -> None:
        self.address = address
        self.is_closed = False
        self._on_closed = on_closed

    def write(self, frame: bytes) -> None:
        raise NotImplementedError

    async def drain(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self._on_closed)


class FakeTransport:
    """Connects at once, or when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.opened: list[FakeLink] = []
        # Called when an attempt has ended, before whoever waits for it runs.
        self.on_ended: Callable[[], object] = lambda: None
        self.closed = False

    async def connect(
        self,
        address: str,
        service: str,
        on_frame: Callable[[Carried], None],
        on_closed: Callable[[], None],
    ) -> FakeLink:
        self.asked.append(address)
        await self.may_open.wait()
        asyncio.get_running_loop().call_soon(self.on_ended)
        if address.startswith("b:"):
            raise LinkClosed("nobody answers at b")
        self.opened.append(FakeLink(address, on_closed))
        return self.opened[-1]

    async def close(self) -> None:
        self.closed = True


class World:
    def __init__(self) -> None:
        self.view = View()
        self.inner = FakeTransport()
        self.transport = ClusterTransport(self.inner, lambda: self.view)
        self.closed_count = 0

    def show(self, shown: View) -> None:
        self.view = shown
        self.transport.owners_changed(shown)

    async def connect(self, name: str) -> FakeLink:
        link = await self.transport.connect(name, "Broker", lambda _: None, self._on_closed)
        assert isinstance(link, FakeLink)
        return link

    def _on_closed(self) -> None:
        self.closed_count += 1


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(10):
            await scenario(World())

    asyncio.run(run())


def test_a_name_is_resolved_whenever_a_link_is_opened() -> None:
    async def scenario(world: World) -> None:
        world.show(view(1, broker_3=("a", 17), coordinator_0=("a", 18)))
        assert (await world.connect("broker-3")).address == "a:6650#3.17"
        assert (await world.connect("coordinator-0")).address == "a:6651#0.18"
        world.show(view(2, broker_3=("a", 19)))
        assert (await world.connect("broker-3")).address == "a:6650#3.19"

    play(scenario)


@pytest.mark.parametrize("name", ["broker-4", "broker-99999", "b:6650", "broker-03", "", "broker-"])
def test_nobody_is_asked_for_what_nobody_has(name: str) -> None:
    async def scenario(world: World) -> None:
        world.show(view(1, broker_3=("a", 17)))
        with pytest.raises(LinkClosed):
            await world.connect(name)
        assert world.inner.asked == []

    play(scenario)


def test_an_owner_that_is_no_member_cannot_be_reached() -> None:
    async def scenario(world: World) -> None:
        world.show(view(1, broker_3=("gone", 17)))
        with pytest.raises(LinkClosed, match="broker-3"):
            await world.connect("broker-3")

    play(scenario)


def test_links_to_a_former_owner_end_and_others_stay() -> None:
    async def scenario(world: World) -> None:
        world.show(view(1, broker_3=("a", 17), broker_4=("a", 18)))
        links = [await world.connect("broker-3"), await world.connect("broker-4")]

        def ended() -> list[bool]:
            return [link.is_closed for link in links]

        world.show(view(2, broker_3=("a", 17), broker_4=("a", 18), broker_5=("b", 20)))
        assert ended() == [False, False]
        world.show(view(3, broker_4=("a", 18)))
        assert ended() == [True, False]
        # The same member again is another owner.
        world.show(view(4, broker_3=("a", 21), broker_4=("a", 22)))
        assert ended() == [True, True]
        await turns(3)
        assert world.closed_count == 2

    play(scenario)


def test_an_attempt_ends_when_the_shard_is_elsewhere() -> None:
    """The server may be one that sleeps: the attempt would take its whole time."""

    async def scenario(world: World) -> None:
        world.show(view(1, broker_3=("a", 17)))
        world.inner.may_open.clear()
        connecting = asyncio.create_task(world.connect("broker-3"))
        await turns(3)
        world.show(view(2, broker_3=("a", 17)))
        await turns(3)
        assert not connecting.done()
        world.show(view(3, broker_3=("b", 18)))
        with pytest.raises(LinkClosed, match="another owner"):
            await connecting

    play(scenario)


def test_a_cancelled_attempt_is_a_cancellation() -> None:
    async def scenario(world: World) -> None:
        world.show(view(1, broker_3=("a", 17)))
        world.inner.may_open.clear()
        connecting = asyncio.create_task(world.connect("broker-3"))
        await turns(3)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        world.show(view(2))

    play(scenario)


def test_a_link_that_comes_up_as_its_attempt_is_cancelled_is_closed() -> None:
    """Nobody else would close it."""

    async def scenario(world: World) -> None:
        world.show(view(1, broker_3=("a", 17)))
        connecting = asyncio.create_task(world.connect("broker-3"))
        world.inner.on_ended = connecting.cancel
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await turns(3)
        assert [one.is_closed for one in world.inner.opened] == [True]

    play(scenario)


def test_an_owner_that_changes_while_the_link_comes_up_is_noticed() -> None:
    async def scenario(world: World) -> None:
        world.show(view(1, broker_3=("a", 17)))
        world.inner.may_open.clear()
        connecting = asyncio.create_task(world.connect("broker-3"))
        await turns(3)
        world.inner.may_open.set()
        # The view is there; whoever tells of it has not had its turn.
        world.view = view(2)
        link = await connecting
        assert link.is_closed
        await turns(3)
        assert world.closed_count == 1

    play(scenario)


def test_an_owner_that_cannot_be_reached_is_tried_again() -> None:
    async def scenario(world: World) -> None:
        world.show(view(1, broker_3=("b", 17)))
        for _ in range(2):
            with pytest.raises(LinkClosed, match="nobody answers"):
                await world.connect("broker-3")
        world.show(view(2))
        await world.transport.close()
        assert world.inner.closed

    play(scenario)


def test_clients_are_told_where_shards_are() -> None:
    shown = view(1, broker_3=("a", 17), coordinator_0=("a", 18), broker_4=("b", 19))
    book = OwnersBook(lambda: shown)

    def found(name: str) -> tuple[str, str, int]:
        told = book.find(
            MemberAddress(name=name, address="old:1", external_address="old:2", tcid=9)
        )
        return told.address, told.external_address, told.tcid

    assert found("broker-3") == ("a:6650#3.17", "out:16650#3.17", 9)
    assert found("coordinator-0") == ("a:6651#0.18", "", 9)
    assert found("broker-4") == ("b:6650#4.19", "", 9)
    assert found("broker-5") == ("#5.0", "", 9)
    assert found("somebody") == ("old:1", "old:2", 9)
