"""The console over HTTP, beside real servers that ask for tokens."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from tests.cli.running import Standalone, running_standalone
from tests.tokens import Maker, jwks

import magnetar
from magnetar import TransactionStatus
from magnetar_console.serving import serving
from magnetar_console.settings import ConsoleSettings
from magnetar_core.clock import SystemClock

ACCESS = """
[principals]
"server" = ["coordinator", "broker"]
"admin" = ["admin"]
"reader" = ["reader"]

[[roles.reader]]
topic = "open-*"
allow = ["READ", "DESCRIBE"]

[[roles.reader]]
cluster = true
allow = ["DESCRIBE"]
"""


class Secured:
    """Servers that ask for tokens, and who may do what."""

    def __init__(self, standalone: Standalone, maker: Maker) -> None:
        self.address = standalone.environ["MAGNETAR_BROKER"]
        self.maker = maker

    def token(self, name: str) -> str:
        return self.maker.token(name)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    maker = Maker()
    (directory / "keys.json").write_text(jwks(maker))
    (directory / "access.toml").write_text(ACCESS)
    (directory / "server.token").write_text(maker.token("server", lasts_s=3_600))
    settings = {
        "token_keys_file": str(directory / "keys.json"),
        "token_file": str(directory / "server.token"),
        "access_file": str(directory / "access.toml"),
    }
    section = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    config = directory / "magnetar.toml"
    config.write_text(
        f"[broker]\n{section}\n[coordinator]\n{section}two_phase_commit_enabled = true\n"
    )
    with running_standalone(directory, "--config", str(config)) as standalone:
        yield Secured(standalone, maker)


@asynccontextmanager
async def browser(secured: Secured, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A browser on a console of its own; it keeps cookies."""
    async with serving(
        ConsoleSettings(port=0, **settings),
        [secured.address],
        tls=None,
        clock=SystemClock(),
        random=Random(),
    ) as address:
        base = address.rstrip("/")
        async with httpx.AsyncClient(base_url=base, headers={"origin": base}, timeout=30) as asking:
            yield asking


def page_token(text: str) -> str:
    found = re.search(r'name="page-token" content="(\w+)"', text)
    assert found
    return found[1]


async def sign_in(asking: httpx.AsyncClient, token: str) -> str:
    """Sign in, and return the page's token."""
    first = await asking.get("/")
    assert first.status_code == 401
    assert "Sign in" in first.text
    form = {"page_token": page_token(first.text), "token": token, "back": "/"}
    assert (await asking.post("/sign-in", data=form)).status_code == 303
    page = await asking.get("/")
    assert page.status_code == 200
    return page_token(page.text)


async def seen(
    asking: httpx.AsyncClient, path: str, enough: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Read events until the tables are as they should be, and return them with the last beat."""
    tables: dict[str, Any] = {}
    kind = ""
    async with asking.stream("GET", path) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        async for line in reply.aiter_lines():
            name, _, text = line.partition(": ")
            if name == "event":
                kind = text
            if name != "data":
                continue
            told = json.loads(text)
            if kind == "state":
                tables = told
            elif kind == "change":
                for table, change in told.items():
                    rows = tables.setdefault(table, {})
                    for key in change["gone"]:
                        rows.pop(key, None)
                    rows.update(change["set"])
            else:
                tables["beat"] = told
                if enough(tables):
                    return tables
    raise AssertionError(f"the events ended: {tables}")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_viewer_sees_what_the_token_allows(secured: Secured) -> None:
    async def work() -> None:
        async with (
            await magnetar.connect(secured.address, token=secured.token("admin")) as client,
            browser(secured) as admin,
            browser(secured) as reader,
        ):
            for topic in ("open-orders", "closed-orders"):
                await client.admin.topics.create(topic, exist_ok=True)
                await (await client.create_producer(topic)).send(b"plain")
            await sign_in(admin, secured.token("admin"))
            await sign_in(reader, secured.token("reader"))

            def described(tables: dict[str, Any]) -> bool:
                rows = tables.get("topics", {}).values()
                return bool(rows) and all(one["seen_ms"] for one in rows)

            told = await seen(admin, "/events?view=topics", described)
            assert set(told["topics"]) >= {"open-orders", "closed-orders"}
            told = await seen(reader, "/events?view=topics", described)
            assert "open-orders" in told["topics"]
            assert "closed-orders" not in told["topics"]

            def failed(tables: dict[str, Any]) -> bool:
                return bool(tables["beat"]["error"])

            path = "/events?view=messages&partition=0&name="
            told = await seen(reader, f"{path}open-orders", lambda tables: "messages" in tables)
            (row,) = told["messages"].values()
            assert (row["value"]["text"], row["txn_id"]) == ("plain", "")
            told = await seen(reader, f"{path}closed-orders", failed)
            assert told["beat"]["error"].startswith("AuthorizationFailed")
            assert "messages" not in told

    run(work())


def test_without_a_token_nothing_is_shown(secured: Secured) -> None:
    async def work() -> None:
        async with browser(secured) as asking:
            for page in ("/", "/topics", "/topic?name=open-orders", "/cluster"):
                reply = await asking.get(page)
                assert reply.status_code == 401
                assert "/static/views/" not in reply.text
            told = await seen(
                asking, "/events?view=transactions", lambda tables: bool(tables["beat"]["error"])
            )
            assert told["beat"]["error"].startswith("AuthenticationFailed")
            assert set(told) == {"beat"}

    run(work())


def test_a_wrong_token_is_refused(secured: Secured) -> None:
    async def work() -> None:
        async with browser(secured) as asking:
            token = page_token((await asking.get("/sign-in")).text)
            for wrong in ("", "nonsense", "<b>", Maker("other").token("admin")):
                form = {"page_token": token, "token": wrong}
                reply = await asking.post("/sign-in", data=form)
                assert reply.status_code == 401, wrong
                assert "<b>" not in reply.text
            form = {"page_token": "another", "token": secured.token("admin")}
            assert (await asking.post("/sign-in", data=form)).status_code == 403

    run(work())


def test_signing_in_makes_another_session_and_signing_out_ends_it(secured: Secured) -> None:
    async def work() -> None:
        async with browser(secured) as asking:
            await asking.get("/")
            (before,) = asking.cookies.jar
            token = await sign_in(asking, secured.token("admin"))
            (after,) = asking.cookies.jar
            assert before.value != after.value
            reply = await asking.get("/")
            assert "httponly" in reply.headers["set-cookie"].lower()
            assert "samesite=strict" in reply.headers["set-cookie"].lower()
            reply = await asking.post("/sign-out", data={"page_token": token})
            assert reply.status_code == 303
            assert (await asking.get("/")).status_code == 401

    run(work())


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_signing_in_leads_nowhere_else(secured: Secured, back: str) -> None:
    async def work() -> None:
        async with browser(secured) as asking:
            token = page_token((await asking.get("/sign-in")).text)
            form = {"page_token": token, "token": secured.token("admin"), "back": back}
            reply = await asking.post("/sign-in", data=form)
            assert reply.headers["location"] == "/"

    run(work())


def test_an_abort_needs_the_option_the_page_and_the_rights(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with (
            await magnetar.connect(secured.address, token=secured.token("admin")) as client,
            browser(secured, allow_actions=True) as admin,
            browser(secured, allow_actions=True) as reader,
            browser(secured) as looking,
        ):
            await client.admin.topics.create("open-orders", exist_ok=True)
            txn = await client.begin_transaction()
            producer = await client.create_producer("open-orders")
            await producer.send(b"lost", txn=txn)
            tokens = [
                await sign_in(one, secured.token(name))
                for one, name in ((admin, "admin"), (reader, "reader"), (looking, "admin"))
            ]
            body = {"id": str(txn.txn_id)}

            async def post(
                asking: httpx.AsyncClient, token: str, path: str, body: dict[str, Any]
            ) -> httpx.Response:
                return await asking.post(path, json=body, headers={"x-console-token": token})

            assert (await post(looking, tokens[2], "/plan/abort", body)).json()[
                "error"
            ] == "ReadOnly"
            assert (await post(looking, tokens[2], "/do/abort", body)).status_code == 403
            # The token of another browser's page.
            assert (await post(admin, tokens[1], "/do/abort", body)).json()["error"] == "OldPage"
            assert (await post(admin, "", "/do/abort", body)).status_code == 403
            # Without what was confirmed.
            refused = await post(admin, tokens[0], "/do/abort", body)
            assert (refused.status_code, refused.json()["error"]) == (409, "InvalidArgument")
            for wrong in ({}, {"id": 7}, {"id": "<b>"}):
                assert (await post(admin, tokens[0], "/plan/abort", wrong)).status_code == 409

            told = (await post(admin, tokens[0], "/plan/abort", body)).json()
            assert told["question"] == f"Abort transaction {txn.txn_id}?"
            assert told["sentences"][0] == "All that it has written is discarded: open-orders / 0."
            confirmed = body | {"seen": told["seen"]}
            allowed = await post(reader, tokens[1], "/do/abort", confirmed)
            assert allowed.json()["error"] == "AuthorizationFailed"
            described = await client.admin.transactions.describe(txn.txn_id)
            assert described.status is TransactionStatus.OPEN

            # More would be lost than was confirmed.
            await client.admin.topics.create("open-more", exist_ok=True)
            await (await client.create_producer("open-more")).send(b"too", txn=txn)
            refused = await post(admin, tokens[0], "/do/abort", confirmed)
            assert "has changed" in refused.json()["text"]
            told = (await post(admin, tokens[0], "/plan/abort", body)).json()
            done = await post(admin, tokens[0], "/do/abort", body | {"seen": told["seen"]})
            assert done.json() == {"text": f"{txn.txn_id} is ABORTED."}
            described = await client.admin.transactions.describe(txn.txn_id)
            assert described.status is TransactionStatus.ABORTED

    with caplog.at_level("INFO", "magnetar_console.audit"):
        run(work())
    assert "a viewer at 127.0.0.1 aborts transaction" in caplog.text
    assert "it failed: " in caplog.text


def test_what_is_decided_by_a_database_needs_the_rights_too(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with (
            await magnetar.connect(secured.address, token=secured.token("admin")) as client,
            browser(secured, allow_actions=True) as admin,
            browser(secured, allow_actions=True) as reader,
            browser(secured) as looking,
        ):
            await client.admin.topics.create("open-decided", exist_ok=True)
            producer = client.transactional_producer("shop", two_phase_commit=True)
            await producer.init()
            await producer.begin()
            await producer.send("open-decided", b"prepared")
            state = await producer.prepare()
            assert state.txn_id is not None
            other = client.transactional_producer("other", two_phase_commit=True)
            await other.init()
            await other.begin()
            foreign = str(await other.prepare())
            tokens = {
                one: await sign_in(one, secured.token(name))
                for one, name in ((admin, "admin"), (reader, "reader"), (looking, "admin"))
            }

            async def post(asking: httpx.AsyncClient, path: str, body: dict[str, Any]) -> Any:
                headers = {"x-console-token": tokens[asking]}
                return (await asking.post(path, json=body, headers=headers)).json()

            body = {"id": str(state.txn_id), "state": str(state)}
            for path in ("/plan/decide", "/do/decide", "/plan/terminate", "/do/abort-hanging"):
                assert (await post(looking, path, body))["error"] == "ReadOnly"
            told = await post(admin, "/plan/decide", body)
            assert told["question"] == f"Commit {state.txn_id} of shop?"
            refused = await post(reader, "/do/decide", body | {"seen": told["seen"]})
            assert refused["error"] in ("AuthorizationFailed", "TransactionalIdAuthorizationFailed")
            # Another plan than the one that was seen.
            refused = await post(
                admin, "/do/decide", {"id": body["id"], "absent": True, "seen": told["seen"]}
            )
            assert "has changed" in refused["text"]
            for path, wrong, part in (
                ("/plan/decide", {"id": body["id"]}, "say what the table"),
                ("/plan/decide", body | {"absent": True}, "say what the table"),
                ("/plan/decide", body | {"state": "1/2"}, "not the state"),
                ("/plan/decide", body | {"state": foreign}, "is not a state of shop"),
                ("/plan/decide", {"id": 7}, "must be a text"),
                ("/plan/decide", {"id": "x" * 2_000}, "at most"),
                ("/plan/terminate", body, "its database decides"),
                ("/plan/abort", body, "its database decides"),
                ("/plan/abort-hanging", {}, "does not say where"),
                ("/plan/abort-hanging", {"topic": "open-decided", "partition": "0"}, "a number"),
                ("/plan/abort-hanging", {"topic": "open-decided", "id": body["id"]}, "no longer"),
            ):
                assert part in (await post(admin, path, wrong))["text"], (path, wrong)
            described = await client.admin.transactions.describe(state.txn_id)
            assert described.status is TransactionStatus.OPEN
            done = await post(admin, "/do/decide", body | {"seen": told["seen"]})
            assert done == {"text": f"{state.txn_id} is committed."}
            described = await client.admin.transactions.describe(state.txn_id)
            assert described.status is TransactionStatus.COMMITTED

    with caplog.at_level("INFO", "magnetar_console.audit"):
        run(work())
    assert "a viewer at 127.0.0.1 completes" in caplog.text


def test_questions_need_no_option_and_the_rights(secured: Secured) -> None:
    async def work() -> None:
        async with (
            await magnetar.connect(secured.address, token=secured.token("admin")) as client,
            browser(secured) as reader,
            browser(secured) as stranger,
        ):
            for topic in ("open-orders", "closed-orders"):
                await client.admin.topics.create(topic, exist_ok=True)
            token = await sign_in(reader, secured.token("reader"))

            async def ask(path: str, body: dict[str, Any]) -> Any:
                headers = {"x-console-token": token}
                return (await reader.post(f"/ask/{path}", json=body, headers=headers)).json()

            told = await ask("hanging", {"topic": "open-orders"})
            assert (told["found"], told["searched"], told["after"]) == ([], 1, "")
            told = await ask("hanging", {"topic": "closed-orders"})
            assert told["error"] == "AuthorizationFailed"
            cut = await ask("take-cut", {"topics": ["open-orders"]})
            assert [one["topic"] for one in cut["topics"]] == ["open-orders"]
            read = {"token": cut["token"], "topic": "open-orders", "partition": 0}
            assert "messages" in await ask("read-cut", read)
            assert (await ask("take-cut", {"topics": ["closed-orders"]}))["error"]
            other = str(await client.cut("closed-orders"))
            read = {"token": other, "topic": "closed-orders", "partition": 0}
            assert (await ask("read-cut", read))["error"] == "AuthorizationFailed"
            for path, wrong, part in (
                ("take-cut", {}, "does not name topics"),
                ("take-cut", {"topics": []}, "1 to 100 topics"),
                ("take-cut", {"topics": [7]}, "does not name topics"),
                ("describe-cut", {"token": "x"}, ""),
                ("read-cut", read | {"partition": 9}, "no partition 9"),
                ("hanging", {"age_ms_min": True}, "must be a number"),
            ):
                answer = await ask(path, wrong)
                assert part in answer["text"], (path, wrong)
            refused = await stranger.post("/ask/hanging", json={})
            assert refused.status_code == 403

    run(work())


def test_what_is_not_there(secured: Secured) -> None:
    async def work() -> None:
        async with browser(secured) as asking:
            for path, status in (
                ("/topic", 404),
                ("/transaction?id=<script>", 404),
                ("/events?view=secrets", 404),
                ("/nowhere", 404),
                ("/static/../hub.py", 404),
                ("/static/%2e%2e/hub.py", 404),
                ("/static/console.css", 200),
            ):
                reply = await asking.get(path)
                assert reply.status_code == status, path
                assert "content-security-policy" in reply.headers
                assert "<script>" not in reply.text

    run(work())


def test_the_port_is_in_use(secured: Secured, tmp_path: Path) -> None:
    from magnetar_core.config import InvalidConfig

    async def work() -> None:
        async with browser(secured) as asking:
            port = asking.base_url.port
            with pytest.raises(InvalidConfig, match="choose another with --port"):
                async with serving(
                    ConsoleSettings(port=port or 0),
                    [secured.address],
                    tls=None,
                    clock=SystemClock(),
                    random=Random(),
                ):
                    pass

    run(work())
