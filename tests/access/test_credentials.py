"""Every command by every role with every kind of credentials, over both forms, at real servers.

Good credentials, however shown, give the rights of `table.TABLE`. With bad ones no command is
even looked at, whichever principal they name. `make test` shows each command with each kind of
credentials and some of the roles; the whole product is a soak test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.access.credentials import GOOD, NO_LINK, SERVER, WAYS, Files, Shown, bad
from tests.access.table import PRINCIPALS, give_roles, rows
from tests.access.world import (
    BROKER,
    COORDINATOR,
    Metadata,
    RawClient,
    World,
    error_of,
    is_refused,
    world,
)

from magnetar.testing.envelope import command
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import common_pb2, service_pb2

# Principals that are worth most to an attacker; bad credentials name them.
MIGHTY = ("admin", "coordinator", "broker")
FORMS = ("unary", "stream")
AT_ONCE = 32
REPEATS = 50
HELLO = common_pb2.CommandHello(protocol_version=PROTOCOL_VERSION)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("credentials"), PRINCIPALS)


@pytest.fixture
def access(tmp_path: Path) -> AccessConfig:
    # Certificates of the right name, and of the wrong hands, would be worth most.
    servers = {SERVER: ["coordinator", "broker"], "mallory": ["admin", "coordinator"]}
    return give_roles(tmp_path / "access.toml", servers)


def run_good(
    kind: str,
    roles: Mapping[str, Sequence[str]],
    files: Files,
    access: AccessConfig,
    directory: Path,
) -> None:
    """Ask everything in the names of each form's roles, and compare with the table."""
    name_of_way, show = GOOD[kind]
    way = WAYS[name_of_way]
    wrong: list[str] = []

    async def ask(servers: World, form: str, role: str, service: str) -> None:
        shown, asked = show(files, role), rows(service, form)
        servers.asked.clear()
        channel = files.channel(servers.address(service), shown)
        async with RawClient(servers, service, channel=channel, metadata=shown.metadata) as client:
            answers = await ask_all(client, [body for body, _ in asked], form)
        wrong.extend(
            f"{role}: {form} {FIELD_OF_BODY[type(body)]}: {answer}"
            for (body, allowed), answer in zip(asked, answers, strict=True)
            if is_refused(answer) is (role in allowed) or is_unauthenticated(answer)
        )
        assert {asker for _, asker in servers.asked} - {SERVER} == {role}

    async def run() -> None:
        async with world(access, directory, files.listen(way), files.security(way)) as servers:
            for form in FORMS:
                for role in roles[form]:
                    for service in (BROKER, COORDINATOR):
                        await ask(servers, form, role, service)

    asyncio.run(run())
    assert wrong == []


async def ask_all(client: RawClient, bodies: Sequence[Any], form: str) -> list[Any]:
    if form == "stream":
        return await client.stream_all(bodies)
    found: list[Any] = []
    for part in batches(bodies):
        found += await asyncio.gather(*[client.unary(body) for body in part])
    return found


def batches(bodies: Sequence[Any]) -> Iterable[Sequence[Any]]:
    for at in range(0, len(bodies), AT_ONCE):
        yield bodies[at : at + AT_ONCE]


def is_unauthenticated(answer: Any) -> bool:
    return (
        isinstance(answer, common_pb2.ServerError)
        and answer.code == common_pb2.AUTHENTICATION_FAILED
    )


@pytest.mark.parametrize("kind", GOOD)
def test_rights_are_those_of_the_principal_however_it_is_known(
    kind: str, files: Files, access: AccessConfig, tmp_path: Path
) -> None:
    """All roles in conversations, and a quarter of them by method; each role in some way."""
    roles = PRINCIPALS[list(GOOD).index(kind) % 4 :: 4]
    run_good(kind, {"stream": PRINCIPALS, "unary": roles}, files, access, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("kind", GOOD)
def test_rights_are_those_of_the_principal_however_it_is_known_in_full(
    kind: str, files: Files, access: AccessConfig, tmp_path: Path
) -> None:
    run_good(kind, dict.fromkeys(FORMS, PRINCIPALS), files, access, tmp_path)


async def refusal(channel: grpc.aio.Channel, metadata: Metadata, service: str, body: Any) -> str:
    """Return how a conversation is refused that begins with a command."""
    for _ in range(REPEATS):
        found = await refusal_once(channel, metadata, service, body)
        # gRPC's client says so itself, if the refusal comes while it still writes.
        if found != "INTERNAL":
            return found
    return "INTERNAL"


async def refusal_once(
    channel: grpc.aio.Channel, metadata: Metadata, service: str, body: Any
) -> str:
    method: Any = channel.stream_stream(f"/magnetar.v1.{service}/Exchange")
    call: Any = method(metadata=metadata)
    try:
        # Some commands have no answer; the hello has one.
        frame = service_pb2.Frame(commands=[command(body, 1), command(HELLO, 2)])
        await call.write(frame.SerializeToString())
        data = await call.read()
        if isinstance(data, bytes):
            return f"it was answered: {data!r}"
    except grpc.aio.AioRpcError as error:
        return told(error)
    except asyncio.InvalidStateError:
        # It was refused before the command had left.
        pass
    finally:
        call.cancel()
    code: grpc.StatusCode = await call.code()
    return code.name


async def unary_refusal(
    channel: grpc.aio.Channel, metadata: Metadata, service: str, body: Any
) -> str:
    name = type(body).__name__.removeprefix("Command")
    method: Any = channel.unary_unary(f"/magnetar.v1.{service}/{name}")
    try:
        data = await method(body.SerializeToString(), metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return told(error)
    return f"it was answered: {data!r}"


def told(error: grpc.aio.AioRpcError) -> str:
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        assert is_unauthenticated(error_of(error)), error
    return error.code().name


# A form, a service and a command of it.
Asked = tuple[str, str, Any]
EVERYTHING: list[Asked] = [
    (form, service, body)
    for form in FORMS
    for service in (BROKER, COORDINATOR)
    for body, _ in rows(service, form)
]


def run_bad(
    way_name: str,
    shares: Iterable[tuple[str, str, Sequence[Asked]]],
    files: Files,
    access: AccessConfig,
    directory: Path,
) -> None:
    """Ask with credentials that do not count.

    Args:
        shares: of each kind of credentials: the principal that they name, and the commands.
    """
    way = WAYS[way_name]
    wrong: list[str] = []

    async def run() -> None:
        async with world(access, directory, files.listen(way), files.security(way)) as servers:
            for kind, role, asked in shares:
                expected = "UNAVAILABLE" if kind in NO_LINK else "UNAUTHENTICATED"
                found = await refusals(servers, files, bad(way)[kind](files, role), asked)
                wrong.extend(
                    f"{kind} of {role}: {form} {FIELD_OF_BODY[type(body)]}: {answer}"
                    for (form, _, body), answer in zip(asked, found, strict=True)
                    if answer != expected
                )
            assert {asker for _, asker in servers.asked} <= {SERVER}

    asyncio.run(run())
    assert wrong == []


async def refusals(
    servers: World, files: Files, shown: Shown, asked: Sequence[Asked]
) -> Sequence[str]:
    found: list[str] = []
    async with (
        files.channel(servers.address(BROKER), shown) as broker,
        files.channel(servers.address(COORDINATOR), shown) as coordinator,
    ):
        channels = {BROKER: broker, COORDINATOR: coordinator}
        for part in batches(asked):
            calls = [
                (refusal if form == "stream" else unary_refusal)(
                    channels[service], shown.metadata, service, body
                )
                for form, service, body in part
            ]
            found += await asyncio.gather(*calls)
    return found


@pytest.mark.parametrize("way_name", WAYS)
def test_no_command_is_looked_at_with_bad_credentials(
    way_name: str, files: Files, access: AccessConfig, tmp_path: Path
) -> None:
    """Each command in both forms, and each kind of credentials with some commands."""
    kinds = list(bad(WAYS[way_name]))
    shares = [
        (kind, MIGHTY[at % len(MIGHTY)], EVERYTHING[at :: len(kinds)])
        for at, kind in enumerate(kinds)
    ]
    run_bad(way_name, shares, files, access, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("way_name", WAYS)
def test_no_command_is_looked_at_with_bad_credentials_in_full(
    way_name: str, files: Files, access: AccessConfig, tmp_path: Path
) -> None:
    """Each command in both forms, with each kind of credentials, in each name."""
    kinds = bad(WAYS[way_name])
    shares = ((kind, role, EVERYTHING) for kind in kinds for role in PRINCIPALS)
    run_bad(way_name, shares, files, access, tmp_path)


@pytest.mark.parametrize("way_name", WAYS)
def test_health_asks_for_no_token(
    way_name: str, files: Files, access: AccessConfig, tmp_path: Path
) -> None:
    """Probes have none. TLS has the last word: without a certificate there is no link."""
    way = WAYS[way_name]

    async def run() -> None:
        async with world(access, tmp_path, files.listen(way), files.security(way)) as servers:
            for service in (BROKER, COORDINATOR):
                pair = files.machine if way.certificates else None
                address = servers.address(service)
                async with files.channel(address, Shown(way.tls, pair=pair)) as channel:
                    assert await health_of(channel, service) == "SERVING"
                if not way.certificates:
                    continue
                for no_pair in (None, files.strange["admin"], files.expired["admin"]):
                    async with files.channel(address, Shown(True, pair=no_pair)) as channel:
                        assert await health_of(channel, service) == "UNAVAILABLE"

    asyncio.run(run())


async def health_of(channel: grpc.aio.Channel, service: str) -> str:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    try:
        answer = await stub.Check(
            health_pb2.HealthCheckRequest(service=f"magnetar.v1.{service}"), timeout=10
        )
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
