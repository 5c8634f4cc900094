"""Requests that are refused, and headers of all answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import TypeAlias

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from magnetar_console.settings import ConsoleSettings
from magnetar_console.web.guard import CONTENT_POLICY, Guard
from magnetar_console.web.sessions import Sessions
from magnetar_core.clock import SystemClock
from magnetar_core.config import InvalidConfig

HOSTS = ConsoleSettings().hosts(8650)
Content: TypeAlias = bytes | AsyncIterator[bytes] | None
OWN = "http://127.0.0.1:8650"


async def answer(request: Request) -> PlainTextResponse:
    return PlainTextResponse("done")


def asked(method: str, headers: dict[str, str], content: Content = None) -> httpx.Response:
    """Ask an application behind the guard."""
    app = Starlette(
        routes=[Route("/", answer, methods=["GET", "POST"])],
        middleware=[Middleware(Guard, hosts=HOSTS, scheme="http")],
    )

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=OWN) as client:
            return await client.request(method, "/", headers=headers, content=content)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8650"}, 200),
        ({"host": "LOCALHOST:8650"}, 200),
        ({"host": "[::1]:8650"}, 200),
        # Another site has pointed its name at this machine.
        ({"host": "evil.example:8650"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1:8651"}, 403),
        ({"host": "127.0.0.1"}, 403),
        ({"host": ""}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://127.0.0.1:8650"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-dest": "script"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-dest": "empty"}, 403),
        # A link on another page.
        ({"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}, 200),
    ],
)
def test_what_may_be_read(headers: dict[str, str], status: int) -> None:
    assert asked("GET", headers).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": OWN}, 200),
        ({"origin": OWN, "sec-fetch-site": "same-origin"}, 200),
        ({}, 403),
        ({"origin": "http://localhost:8650"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": OWN, "sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}, 403),
        ({"origin": OWN, "host": "evil.example:8650"}, 403),
        ({"origin": "http://evil.example:8650", "host": "evil.example:8650"}, 403),
        ({"origin": OWN, "content-length": "100000"}, 403),
    ],
)
def test_what_may_be_asked_for(headers: dict[str, str], status: int) -> None:
    assert asked("POST", headers, b"{}").status_code == status


def test_a_body_without_a_length_is_refused() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"{}"

    assert asked("POST", {"origin": OWN}, pieces()).status_code == 403


@pytest.mark.parametrize("headers", [{}, {"host": "evil.example"}])
def test_every_answer_has_the_policy(headers: dict[str, str]) -> None:
    told = asked("GET", headers).headers
    assert told["content-security-policy"] == CONTENT_POLICY
    assert told["x-content-type-options"] == "nosniff"
    assert told["cache-control"] == "no-store"
    assert "default-src 'none'" in CONTENT_POLICY
    assert "require-trusted-types-for 'script'" in CONTENT_POLICY
    assert "unsafe" not in CONTENT_POLICY


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"host": "0.0.0.0"}, "--allow-remote"),
        ({"host": "10.0.0.1", "allow_remote": True}, "--name"),
        ({"certificate_file": "a.pem"}, "need each other"),
    ],
)
def test_settings_that_are_not_safe_are_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        ConsoleSettings(**fields)  # type: ignore[arg-type]


def test_a_remote_console_is_known_by_its_names_alone() -> None:
    settings = ConsoleSettings(host="0.0.0.0", allow_remote=True, names=("Console.Example",))
    assert settings.hosts(8650) == {"console.example", "console.example:8650"}
    assert settings.address(8650) == "http://Console.Example:8650/"


def test_page_tokens_belong_to_their_session() -> None:
    sessions = Sessions("c", secure=False, clock=SystemClock(), random=Random(1))
    one, other = sessions.new_id(), sessions.new_id()
    assert sessions.has_page_token(one, sessions.page_token(one))
    assert not sessions.has_page_token(one, sessions.page_token(other))
    assert not sessions.has_page_token("", sessions.page_token(""))
    assert not sessions.has_page_token(one, "")


def test_the_number_of_sessions_is_limited() -> None:
    sessions = Sessions("c", secure=False, clock=SystemClock(), random=Random(1))
    first = sessions.sign_in("first")
    for number in range(256):
        sessions.sign_in(f"token {number}")
    assert sessions.token(first) is None
