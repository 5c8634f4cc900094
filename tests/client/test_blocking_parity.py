"""magnetar.blocking has all that the asyncio client has: names, arguments, defaults, docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import blocking_facade
import pytest
from blocking_facade import INTERNAL, PAIRS, Pair, plain
from tests.client.every_object import every_object
from tests.client.fakes import BROKER_ADDRESS, REAL_TIME, FakeCluster, run

import magnetar
from magnetar import blocking
from magnetar.blocking.facade import Facade

CLIENT_NAMES_MAX = 20

# How a type is spelled in the asyncio client, and in the blocking one.
SPELLED = {
    r"\bAsync(?:Generator|Iterator)\[(.+), None\]": r"Iterator[\1]",
    r"\bMember\b": "GroupConsumer",
    r"\bAcknowledging\b": "Consumer | GroupConsumer",
}
# Of the facade itself.
OWN = {"inner", "loop"}

each_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)


def blocking_class(pair: Pair) -> type[Facade[Any]]:
    module = __import__(f"magnetar.blocking.{pair.module}", fromlist=[pair.name])
    found: type[Facade[Any]] = getattr(module, pair.name)
    return found


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def members(pair: Pair) -> list[str]:
    return sorted(public(pair.kind) - INTERNAL.get(pair.name, set()))


def function(kind: type, name: str) -> Any:
    member = inspect.getattr_static(kind, name)
    return member.fget if isinstance(member, property) else member


def spelled(annotation: str) -> str:
    for pattern, here in SPELLED.items():
        annotation = re.sub(pattern, here, annotation)
    return annotation


def parameters(kind: type, name: str) -> list[tuple[str, object, object, str]]:
    found = inspect.signature(function(kind, name)).parameters.values()
    return [(one.name, one.kind, one.default, spelled(str(one.annotation))) for one in found]


@each_pair
def test_the_names_are_the_same(pair: Pair) -> None:
    own = OWN | set(blocking_facade.ATTRIBUTES.get(pair.name, {}))
    assert public(blocking_class(pair)) - own == set(members(pair))


@each_pair
def test_arguments_defaults_and_types_are_the_same(pair: Pair) -> None:
    other = blocking_class(pair)
    for name in members(pair):
        assert parameters(other, name) == parameters(pair.kind, name), name
        returned, wanted = (
            spelled(str(inspect.signature(function(kind, name)).return_annotation))
            for kind in (other, pair.kind)
        )
        assert returned == wanted, name


@each_pair
def test_docstrings_are_the_same(pair: Pair) -> None:
    other = blocking_class(pair)
    assert inspect.getdoc(other) == plain(inspect.getdoc(pair.kind) or "")
    for name in members(pair):
        told = inspect.getdoc(function(pair.kind, name))
        assert told, f"{pair.name}.{name} has no docstring"
        assert inspect.getdoc(function(other, name)) == plain(told), name


@each_pair
def test_nothing_has_to_be_awaited(pair: Pair) -> None:
    other = blocking_class(pair)
    for name in public(other):
        assert not inspect.iscoroutinefunction(function(other, name)), name
    assert hasattr(other, "__enter__") == hasattr(pair.kind, "__aenter__")
    assert hasattr(other, "__exit__") == hasattr(pair.kind, "__aexit__")
    assert hasattr(other, "__iter__") == hasattr(pair.kind, "__aiter__")


def test_every_class_that_has_to_be_awaited_has_a_pair() -> None:
    paired = {pair.name for pair in PAIRS}
    for name in magnetar.__all__:
        kind = getattr(magnetar, name)
        if inspect.isclass(kind) and any(
            inspect.iscoroutinefunction(one) for one in vars(kind).values()
        ):
            assert name in paired
            assert name in blocking.__all__


def test_members_that_are_left_out_exist() -> None:
    for pair in PAIRS:
        assert INTERNAL.get(pair.name, set()) <= public(pair.kind) | {"cluster", "lane", "work"}


def test_objects_have_the_same_attributes() -> None:
    """What __init__ sets shows only in an object."""

    async def test(cluster: FakeCluster, client: magnetar.Client) -> None:
        made = await every_object(cluster, client)
        for name, one in made.items():
            attributes = {each for each in vars(one) if not each.startswith("_")}
            has = set(blocking_facade.ATTRIBUTES.get(name, {}))
            assert attributes - INTERNAL.get(name, set()) == has, name

    run(test)


def test_the_client_has_few_names() -> None:
    """The rest is the administrator's."""
    names = set(public(magnetar.Client))
    assert names == {
        "admin",
        "begin_named_transaction",
        "begin_transaction",
        "close",
        "commit_parts",
        "config",
        "consumer_group",
        "create_producer",
        "cut",
        "read",
        "read_ahead",
        "read_columns",
        "subscribe",
        "transaction",
        "transactional_producer",
    }
    assert len(names) <= CLIENT_NAMES_MAX


def test_functions_take_the_same() -> None:
    made = inspect.signature(blocking.process).parameters
    wanted = inspect.signature(magnetar.process).parameters
    # An asyncio.Event; without asyncio a signal stops it.
    assert [*made] == [name for name in wanted if name != "stop"]
    assert [*inspect.signature(blocking.connect).parameters] == [
        *inspect.signature(magnetar.connect).parameters
    ]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[blocking.Client]:
    with blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=REAL_TIME) as client:
        yield client


def test_callbacks_may_use_the_client(cluster: FakeCluster) -> None:
    """On the client's own thread they would wait for themselves."""
    cluster.coordinators = {"coordinator:1": 1, "coordinator:2": 2}
    cluster.net.dead.add("coordinator:2")
    heard: list[tuple[int, list[object]]] = []
    # So long it waits for the coordinator that does not answer.
    config = dataclasses.replace(REAL_TIME, operation_timeout_ms=2_000)
    with blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=config) as client:

        def on_unanswered(tcid: int, error: magnetar.MagnetarError) -> None:
            heard.append((tcid, [*client.admin.topics.list()]))

        client.admin.cluster_info()
        assert client.admin.transactions.list(on_unanswered=on_unanswered) == []
    assert heard == [(2, [])]


def test_iteration_that_stops_in_the_middle_ends_the_work_behind_it(
    client: blocking.Client,
) -> None:
    ended = threading.Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
        finally:
            ended.set()

    for number in client.loop.iterate(numbers()):
        if number == 2:
            break
    assert number == 2
    assert ended.wait(10)
    assert [*client.loop.iterate(numbers())] == [*range(10)]


def test_reading_may_stop_in_the_middle(client: blocking.Client) -> None:
    client.admin.topics.create("t")
    with client.create_producer("t") as producer:
        producer.send_many([b"a", b"b"])
    # It would wait for more.
    assert next(iter(client.read("t", follow_period_s=60))).value == b"a"
    pieces = client.read_columns("t", follow_period_s=60)
    assert [one.value for one in next(iter(pieces))] == [b"a", b"b"]


def test_reading_passes_on_all_that_it_is_told(
    client: blocking.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body is written by hand: a cut that it forgets would be the whole partition."""
    passed: list[dict[str, Any]] = []
    signature = inspect.signature(blocking.Client.read_columns)

    def record(*args: Any, **how: Any) -> Iterator[Any]:
        passed.append(signature.bind(*args, **how).arguments)
        return iter(())

    monkeypatch.setattr(blocking.Client, "read_columns", record)
    told = {name: name for name in inspect.signature(blocking.Client.read).parameters}
    del told["self"]
    assert list(client.read(**told)) == []  # type: ignore[arg-type]
    assert passed == [{"self": client, **told}]


def test_iteration_over_a_consumer_ends_with_it(client: blocking.Client) -> None:
    client.admin.topics.create("t")
    consumer = client.subscribe("t", "s", initial_position="earliest")
    with client.create_producer("t") as producer:
        producer.send(b"last")
    seen = []
    for message in consumer:
        seen.append(message.value)
        consumer.close()
    assert seen == [b"last"]


def test_a_transaction_of_several_clients(client: blocking.Client) -> None:
    client.admin.topics.create("t")
    with client.create_producer("t") as producer, client.transaction(lazy=True) as txn:
        assert not txn.has_begun
        producer.send(b"a", txn=txn)
        assert txn.failure is None
    assert txn.status is magnetar.TransactionStatus.COMMITTED
    txn.commit(wait_finished=True)
    assert [one.value for one in client.read("t")] == [b"a"]
