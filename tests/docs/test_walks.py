"""docs/protocol/walks.md says what the servers do: each stay exists, and comes in this order."""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from tests.broker import harness as broker
from tests.coordinator import fakes as coordinator
from tests.virtual_time import run

from magnetar_core.server import commands

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "protocol" / "walks.md"
_STAY = re.compile(r"^\d+\. `([\w/]+\.py)`: `([\w.]+)` - \S.*$", re.MULTILINE)
_COUNTS = re.compile(r"^(\d+) stays in (\d+) files, (\d+) returns\.", re.MULTILINE)


class Stay(NamedTuple):
    file: str
    function: str


def walks() -> dict[str, str]:
    title, *parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    assert title
    return {part.split("\n", 1)[0]: part for part in parts}


def stays_of(walk: str) -> list[Stay]:
    return [Stay(*found) for found in _STAY.findall(walks()[walk])]


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{one.name}"
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


@pytest.mark.parametrize("walk", walks())
def test_a_walk_is_counted_as_it_is_written(walk: str) -> None:
    stays = stays_of(walk)
    numbered = re.findall(r"^(\d+)\. ", walks()[walk], re.MULTILINE)
    assert [int(one) for one in numbered] == list(range(1, len(stays) + 1))
    files = [stay.file for stay in stays]
    assert all(first != then for first, then in itertools.pairwise(files))
    found = _COUNTS.search(walks()[walk])
    assert found is not None
    stated = tuple(int(one) for one in found.groups())
    assert stated == (len(files), len(set(files)), len(files) - len(set(files)))


@pytest.mark.parametrize("walk", walks())
def test_every_function_of_a_walk_is_there(walk: str) -> None:
    missing = [
        stay for stay in stays_of(walk) if stay.function not in functions_of(ROOT / stay.file)
    ]
    assert missing == []


class Trace:
    """The functions of both servers in the order of reading: entered, or returned to."""

    def __init__(self) -> None:
        self.read: list[Stay] = []

    @contextmanager
    def on(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        is_server = "/magnetar_broker/" in name or "/magnetar_coordinator/" in name
        return self._on_line if is_server else None

    def _on_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        stay = Stay(
            str(Path(frame.f_code.co_filename).relative_to(ROOT)),
            frame.f_code.co_qualname.split(".<locals>")[0],
        )
        if event == "line" and (not self.read or self.read[-1] != stay):
            self.read.append(stay)
        return self._on_line

    def first_not_read(self, stays: list[Stay]) -> Stay | None:
        """The first stay that does not come behind the one before it."""
        at = 0
        for stay in stays:
            try:
                at = self.read.index(stay, at) + 1
            except ValueError:
                return stay
        return None


@contextmanager
def handlers_traced(trace: Trace) -> Iterator[None]:
    """While a handler runs, and not while others wait for the disk."""
    original = commands.run_handler

    def traced(*args: Any) -> None:
        with trace.on():
            original(*args)

    commands.run_handler = traced  # type: ignore[assignment]
    try:
        yield
    finally:
        commands.run_handler = original


Ask = Callable[[broker.World], Awaitable[object]]
TXN = broker.txn(0)


async def nothing(_: broker.World) -> None:
    return


async def a_transaction(world: broker.World) -> None:
    """It has something that counts, and something that does not."""
    await world.client.ask(broker.send(b"x", in_txn=TXN))


async def a_message(world: broker.World) -> None:
    await world.client.ask(broker.subscribe())
    await world.client.ask(broker.send(b"x"))


AT_THE_BROKER: dict[str, tuple[Ask, Any]] = {
    "Send with a TxnID": (nothing, broker.send(b"x", in_txn=TXN)),
    "An end at a partition": (a_transaction, broker.end(TXN)),
    "An ack": (a_message, broker.ack((0, 0))),
}


@pytest.mark.parametrize("walk", AT_THE_BROKER)
def test_the_broker_takes_this_way(walk: str) -> None:
    prepare, command = AT_THE_BROKER[walk]
    trace = Trace()

    async def scenario(world: broker.World) -> None:
        await prepare(world)
        with handlers_traced(trace):
            await world.client.ask(command)

    broker.run(scenario)
    assert trace.first_not_read(stays_of(walk)) is None


def test_a_delivery_takes_this_way() -> None:
    trace = Trace()

    async def scenario(world: broker.World) -> None:
        await world.client.ask(broker.subscribe(consumer=1))
        world.client.tell(broker.flow())
        await world.settle()
        with trace.on():
            await world.client.ask(broker.send(b"x"))
            await world.settle()

    broker.run(scenario)
    assert trace.first_not_read(stays_of("A delivery")) is None


@pytest.mark.parametrize("walk", ["EndTxn", "AddPartitionToTxn"])
def test_the_coordinator_takes_this_way(walk: str) -> None:
    trace = Trace()

    async def scenario() -> None:
        world = await coordinator.World().start()
        txn_id = await world.client.new(coordinator.P0)
        await world.settle()
        command = {
            "EndTxn": coordinator.end_command(txn_id),
            "AddPartitionToTxn": coordinator.add_command(txn_id, coordinator.P1),
        }[walk]
        with handlers_traced(trace):
            await world.client.ask(command)
        await world.close()

    run(scenario())
    assert trace.first_not_read(stays_of(walk)) is None


def test_a_walk_in_another_order_is_noticed() -> None:
    trace = Trace()
    first, second = Stay("a.py", "f"), Stay("b.py", "g")
    trace.read = [first, second]
    assert trace.first_not_read([first, second]) is None
    assert trace.first_not_read([second, first]) == first
    assert trace.first_not_read([first, second, first]) == first
