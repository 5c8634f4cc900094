"""What a public method cannot take is refused at the call, and nothing is sent to a server."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from blocking_facade import INTERNAL, PAIRS, Pair
from tests.client.every_object import every_object
from tests.client.fakes import BROKER_ADDRESS, REAL_TIME, FakeCluster, run
from tests.waiting import turns

from magnetar import (
    Client,
    ClientConfig,
    CommitRefused,
    ConsumerConfig,
    DeadLetterPolicy,
    MessageId,
    PreparedTxnState,
    ProducerConfig,
    TopicPartition,
    TransactionAction,
    TxnID,
    blocking,
)
from magnetar.arguments import RANGES, checked
from magnetar_core.cuts.cuts import CutRange
from magnetar_core.errors import InvalidArgument

SURROGATE = "\ud800"
TOO_LARGE = 1 << 64
# For each plain type, what is none, or what no field of the protocol holds.
BAD: dict[type, tuple[object, ...]] = {
    str: (SURROGATE, 5, b"text"),
    int: (1.5, "1", True, TOO_LARGE, -TOO_LARGE),
    float: ("1", True, float("nan")),
    bool: ("yes",),
    TxnID: (5, TxnID(TOO_LARGE, 0)),
    MessageId: (5, "1:2:3@0", MessageId(TOO_LARGE, 0, 0)),
    TopicPartition: (5, TopicPartition(SURROGATE, 0), TopicPartition("t", -1)),
}
# What is given for arguments without a default, by their names.
GOOD: dict[str, object] = {
    "value": b"v",
    "topic": "t",
    "topics": "t",
    "subscription": "s",
    "group": "g",
    "kind": "broker",
    "name": "n",
    "sequence": 1,
    "run_token": "r",
    "transactional_id": "x",
    "partition": 0,
    "start": 0,
    "end": 1,
    "txn_id": TxnID(1, 1),
    "action": TransactionAction.COMMIT,
    "message": MessageId(1, 0, 0),
    "messages": [],
    "txn_ids": [],
    "parts": [],
    "producers": [],
    "offsets": {},
    "prepared": PreparedTxnState(),
    "consumer": None,
    "hanging": None,
}
# Their arguments are those of messages, which have tests of their own.
OTHERWISE = {"Producer"}


def bad_arguments(method: Any) -> Iterator[tuple[str, object]]:
    """The names of arguments, with what they do not take."""
    hints = typing.get_type_hints(inspect.unwrap(method))
    # Others look for an id among those that were received.
    checks_ids = inspect.unwrap(method) is not method
    for argument in inspect.signature(method).parameters:
        kinds = list(plain_types(hints.get(argument)))
        accepted = {kind for kind, _ in kinds}
        for kind, several in kinds:
            for bad in BAD[kind]:
                # A text is no number, unless it may be one or the other.
                if type(bad) is not kind and type(bad) in accepted:
                    continue
                if checks_ids or not isinstance(bad, tuple):
                    yield argument, [bad] if several else bad


def plain_types(hint: Any) -> Iterator[tuple[type, bool]]:
    """The plain types that an argument may have, and whether it has several of them."""
    for one in typing.get_args(hint) or (hint,):
        if one in BAD:
            yield one, False
        elif typing.get_origin(one) in (Iterable, Sequence) and typing.get_args(one)[0] in BAD:
            yield typing.get_args(one)[0], True


def good_arguments(method: Any) -> dict[str, object]:
    """What is given for the arguments without a default."""
    return {
        parameter.name: TopicPartition("t", 0)
        if parameter.annotation == "TopicPartition"
        else GOOD[parameter.name]
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    }


METHODS = [
    pytest.param(pair, name, id=f"{pair.name}.{name}")
    for pair in PAIRS
    for name, function in inspect.getmembers(pair.kind, inspect.isfunction)
    if not name.startswith("_")
    and name not in INTERNAL.get(pair.name, set())
    and pair.name not in OTHERWISE
    and any(bad_arguments(function))
]


async def call(method: Any, arguments: dict[str, object]) -> None:
    called = method(**arguments)
    if inspect.isasyncgen(called):
        await anext(called)
    elif inspect.isawaitable(called):
        await called


@pytest.mark.parametrize(("pair", "name"), METHODS)
def test_a_bad_argument_is_refused_before_anything_is_sent(pair: Pair, name: str) -> None:
    async def test(argument: str, bad: object, cluster: FakeCluster, client: Client) -> None:
        method = getattr((await every_object(cluster, client))[pair.name], name)
        received = len(cluster.play.received)
        with pytest.raises(InvalidArgument, match=argument.removesuffix("s")):
            await call(method, {**good_arguments(method), argument: bad})
        await turns(5)
        sent = {name for name, _ in cluster.play.received[received:]}
        # A transaction has the producer of the topic check the message.
        assert sent <= {"group_heartbeat", "lookup"}

    # Each with objects of its own: a transaction fails with the first.
    for argument, bad in bad_arguments(getattr(pair.kind, name)):
        run(partial(test, argument, bad))


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (ClientConfig, {"client_name": SURROGATE}),
        (ClientConfig, {"send_timeout_ms": "5"}),
        (ClientConfig, {"pending_bytes_max": 1.5}),
        (ProducerConfig, {"linger_ms": "5"}),
        (ProducerConfig, {"linger_ms": float("nan")}),
        (ProducerConfig, {"batch_bytes_max": True}),
        (ConsumerConfig, {"receiver_queue_messages": "many"}),
        (DeadLetterPolicy, {"redeliveries_max": 1, "topic": SURROGATE}),
        (DeadLetterPolicy, {"redeliveries_max": "1"}),
    ],
)
def test_settings_are_checked_when_they_are_made(kind: type, wrong: dict[str, object]) -> None:
    *_, name = wrong
    with pytest.raises(InvalidArgument, match=name):
        kind(**wrong)


def test_numbers_of_numpy_count_as_numbers() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        admin: Any = client.admin
        await admin.topics.create("u", partitions=np.int32(3))
        assert len(cluster.topics["u"][1]) == 3
        config: Any = ProducerConfig
        assert config(linger_ms=np.float32(2.5)).linger_ms == 2.5
        with pytest.raises(InvalidArgument):
            await admin.topics.create("v", partitions=np.float64(3))

    run(test)


def test_a_stamp_may_be_the_highest_that_there_is() -> None:
    """Jobs of the pipeline read with it what a cut leaves out."""
    everything = CutRange(1, 0, 9, (1 << 64) - 1, 9, (1 << 64) - 1)

    @checked
    def ask(cut: CutRange) -> CutRange:
        return cut

    assert ask(everything) == everything
    with pytest.raises(InvalidArgument, match="stamp"):
        ask(everything._replace(stamp=1 << 64))


def test_what_is_given_as_several_is_copied_at_the_call() -> None:
    taken: list[object] = []

    @checked
    def take(partitions: typing.Sequence[int]) -> None:
        taken.append(partitions)

    given = [1, 2]
    take(given)
    given.append(3)
    assert taken == [(1, 2)]
    with pytest.raises(InvalidArgument, match="partitions must be an int from 0 to 4294967295"):
        take([RANGES["partitions"][1] + 1])


@pytest.mark.parametrize("wrong", [None, 5, object(), [5]])
def test_consumers_refuse_what_is_no_message(wrong: Any) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        consumer: Any = await client.subscribe("t", "s")
        member: Any = await client.consumer_group("g", "t")
        for call in consumer.nack, consumer.nack_many, member.nack, member.nack_many, member.has:
            with pytest.raises(InvalidArgument, match=r"messages? must be"):
                call(wrong)

    run(test)


@pytest.mark.parametrize("wrong", [None, 5, "consumer"])
def test_a_transactional_producer_refuses_what_is_no_consumer(wrong: Any) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        producer = client.transactional_producer()
        with pytest.raises(InvalidArgument, match="consumer must be"):
            await producer.init_transactions(wrong)
        await producer.begin()
        with pytest.raises(InvalidArgument, match="consumer must be"):
            await producer.acknowledge(wrong, [])
        with pytest.raises(CommitRefused):
            await producer.commit()

    run(test)


@pytest.mark.parametrize("callback", ["on_lost", 5, {}])
def test_callbacks_are_callables(callback: Any) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        with pytest.raises(InvalidArgument, match="on_lost must be a callable or None"):
            await client.consumer_group("g", "t", on_lost=callback)

    run(test)
    cluster = FakeCluster()
    with (
        blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=REAL_TIME) as client,
        pytest.raises(InvalidArgument, match="on_lost must be a callable or None"),
    ):
        client.consumer_group("g", "t", on_lost=callback)


def test_blocking_objects_and_others_are_not_mixed() -> None:
    cluster = FakeCluster()
    with blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=REAL_TIME) as client:
        client.admin.topics.create("t")
        transaction: Any = client.begin_transaction()
        producer, transactional = client.create_producer("t"), client.transactional_producer("id")
        with pytest.raises(InvalidArgument, match=r"the object of magnetar\.blocking"):
            producer.send(b"v", txn=transaction.inner)
        with pytest.raises(InvalidArgument, match=r"the object of magnetar\.blocking"):
            transactional.init_transactions(transaction.inner)


@pytest.mark.parametrize(
    ("call", "accepted"),
    [
        (lambda client: client.create_producer("t", codec="gzip"), '"none" or "zstd" or "lz4"'),
        (lambda client: client.create_producer("t", batching="color"), '"mixed" or "by_key"'),
        (lambda client: client.subscribe("t", "s", type="shard"), '"exclusive" or "shared"'),
        (
            lambda client: client.subscribe("t", "s", initial_position="begin"),
            '"latest" or "earliest"',
        ),
        (lambda client: client.admin.topics.create("u", partitions=0), "an int from 1"),
    ],
)
def test_what_is_accepted_is_named(call: Callable[[Client], Any], accepted: str) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("t")
        with pytest.raises(InvalidArgument, match=f"must be .*{accepted}.*, and is"):
            await call(client)

    run(test)
