"""Every command by every role, over both forms, at real servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.access.table import PRINCIPALS, TABLE, give_roles, methods, rows
from tests.access.world import BROKER, COORDINATOR, RawClient, is_refused, world

from magnetar_core.access.rules import RULES
from magnetar_core.transport.columns.kinds import COLUMNS
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import service_pb2

# What servers push to clients, and never take from them.
PUSHED = {"owners_changed", "deliver", "consumer_change", "group_change", "abort_expelled"}


def requests() -> set[str]:
    """The commands of the envelope that ask for something, each by its name alone."""
    fields = service_pb2.Command.DESCRIPTOR.oneofs_by_name["body"].fields
    names = {field.name for field in fields}
    return (
        {name for name in names if not name.endswith("_response")}
        - {"error"}
        - PUSHED
        - set(COLUMNS)
    )


def test_every_command_has_a_rule() -> None:
    assert set(RULES) == requests()


def test_the_table_has_every_command() -> None:
    assert {FIELD_OF_BODY[type(body)] for _, body, _ in TABLE} == requests()
    for service in (BROKER, COORDINATOR):
        assert methods(service) <= {
            FIELD_OF_BODY[type(body)] for where, body, _ in TABLE if where == service
        }


@pytest.mark.parametrize("principal", PRINCIPALS)
@pytest.mark.parametrize("form", ["unary", "stream"])
def test_every_command_by_every_role(principal: str, form: str, tmp_path: Path) -> None:
    # The servers' own links.
    access = give_roles(tmp_path / "access.toml", {"anonymous": ["coordinator"]})
    wrong: list[str] = []

    async def run() -> None:
        async with world(access, tmp_path) as servers:
            for service in (BROKER, COORDINATOR):
                async with RawClient(servers, service, principal) as client:
                    for body, allowed in rows(service, form):
                        answer = await client.ask(body, form)
                        if is_refused(answer) is (principal in allowed):
                            wrong.append(f"{FIELD_OF_BODY[type(body)]}: {answer}")

    asyncio.run(run())
    assert wrong == []
