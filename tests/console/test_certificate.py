"""Servers that demand a certificate of each client: whose rights viewers have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from tests.console.test_served import seen
from tests.system.secured import Secured, secured_servers

from magnetar import TlsFiles
from magnetar_cli.program import cli
from magnetar_console.serving import serving
from magnetar_console.settings import ConsoleSettings
from magnetar_core.clock import SystemClock
from magnetar_core.config import InvalidConfig


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_servers(tmp_path_factory.mktemp("secured")) as made:
        yield made


def told(secured: Secured, tls: TlsFiles, *, shares: bool, token: str = "") -> dict[str, Any]:
    """Return the tables of the page of topics, signed in with a token or not."""

    async def work() -> dict[str, Any]:
        async with serving(
            ConsoleSettings(port=0, shares_certificate=shares),
            [secured.address],
            tls=tls,
            clock=SystemClock(),
            random=Random(),
        ) as address:
            base = address.rstrip("/")
            headers = {"origin": base}
            async with httpx.AsyncClient(base_url=base, headers=headers, timeout=30) as asking:
                if token:
                    form = {"token": token, "page_token": await page_token(asking)}
                    assert (await asking.post("/sign-in", data=form)).status_code == 303
                page = await asking.get("/topics")
                found = await seen(asking, "/events?view=topics", lambda tables: "beat" in tables)
                return found | {"page": page.text}

    return asyncio.run(work())


async def page_token(asking: httpx.AsyncClient) -> str:
    text = (await asking.get("/sign-in")).text
    return text.partition('name="page-token" content="')[2].partition('"')[0]


def test_without_a_certificate_no_server_is_reached(secured: Secured) -> None:
    found = told(secured, TlsFiles(ca_file=secured.authority.ca_file), shares=False)
    assert "certificate" in found["beat"]["error"]
    assert "rights are those of the console's certificate" not in found["page"]


def test_with_the_console_s_certificate_its_principal_has_the_rights(secured: Secured) -> None:
    found = told(secured, secured.tls("console"), shares=True)
    assert found["beat"]["error"] == ""
    assert "The rights are those of the console" in found["page"]


def test_a_viewer_may_sign_in_as_well(secured: Secured) -> None:
    tls = secured.tls("console")
    found = told(secured, tls, shares=True, token=secured.token("alice"))
    assert found["beat"]["error"] == ""
    assert "Sign out" in found["page"]


def test_other_machines_do_not_get_the_rights_of_a_certificate() -> None:
    with pytest.raises(InvalidConfig, match="behind a proxy that authenticates"):
        ConsoleSettings(
            host="0.0.0.0", allow_remote=True, names=("console.example",), shares_certificate=True
        )


def test_the_option_asks_for_a_certificate(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["console", "--share-certificate"])
    assert done.exit_code == 2
    assert "--tls-certificate-file" in done.output
