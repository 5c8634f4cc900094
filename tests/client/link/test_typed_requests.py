"""A request has the type of its answer: for the type checker, and when an answer comes."""

import re
from pathlib import Path
from typing import assert_type

import pytest
from tests.client.fakes import FakeCluster, run

from magnetar import Client
from magnetar.link.connection import Connection
from magnetar.link.session import LinkSession
from magnetar_core import wire
from magnetar_core.errors import InternalError
from magnetar_core.requests import RESPONSE_FIELDS
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import broker_pb2, topic_pb2

STUB_CLASS = re.compile(r"^class (\w+)\(_requests\.Request\[(\w+)\]\):", re.MULTILINE)


def test_stubs_and_table_say_the_same() -> None:
    name_of = {field: body.__name__ for body, field in FIELD_OF_BODY.items()}
    said = {body.__name__: name_of[field] for body, field in RESPONSE_FIELDS.items()}
    stubs = Path(wire.__path__[0]).glob("*.pyi")
    found = dict(pair for stub in stubs for pair in STUB_CLASS.findall(stub.read_text()))
    assert found == said
    assert found["CommandPublish"] == "CommandSendResponse"  # Not by its name.


def test_what_has_no_answer_is_no_request() -> None:
    unanswered = {body.__name__ for body in FIELD_OF_BODY if body not in RESPONSE_FIELDS}
    assert {one for one in unanswered if not one.endswith("Response")} == {
        "CommandAbortExpelled",
        "CommandConsumerChange",
        "CommandDeliver",
        "CommandFlow",
        "CommandGroupChange",
        "CommandOwnersChanged",
        "CommandTxnsIssued",
        "ServerError",
    }


async def _types(connection: Connection, session: LinkSession) -> None:
    """Never called: mypy reads it."""
    assert_type(
        await connection.request(topic_pb2.CommandLookup()), topic_pb2.CommandLookupResponse
    )
    assert_type(await session.call(broker_pb2.CommandPublish()), broker_pb2.CommandSendResponse)


def test_an_answer_of_another_kind_is_an_error() -> None:
    """Whoever asked would otherwise read fields that the message does not have."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        cluster.topic("orders")
        cluster.on_describe_topic = cluster.on_list_topics  # type: ignore[method-assign]
        with pytest.raises(InternalError, match="list_topics_response"):
            await client.admin.topics.describe("orders")
        # The link is of use all the same.
        await client.admin.topics.create("others")

    run(test)
