"""Searches that brokers or time interrupt, without servers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest

from magnetar import (
    Client,
    HangingTransaction,
    LogUnavailable,
    PartitionName,
    ProducerDescription,
    TxnID,
)
from magnetar_console.asks import hanging

Found: TypeAlias = list[HangingTransaction]


class FakeTopics:
    """Topics a to d: the brokers of b are away, and those of c take for ever."""

    async def list(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(topic=name) for name in ("d", "b", "c", "a")]

    async def find_hanging(self, topic: str, *, age_ms_min: int) -> Found:
        if topic == "b":
            raise LogUnavailable("its broker does not answer")
        if topic == "c":
            await asyncio.Event().wait()
        place, txn_id = PartitionName(topic, 0, 1), TxnID.of(0, 1, 7)
        # Two clients have written there.
        return [
            HangingTransaction(ProducerDescription(place, "", one, -1, one, 0, txn_id, 5, 0), "why")
            for one in (1, 2)
        ]


def test_a_search_goes_on_where_it_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hanging, "SEARCH_S_MAX", 0.05)
    topics = FakeTopics()
    admin = SimpleNamespace(topics=topics, transactions=topics)
    client = cast(Client, SimpleNamespace(admin=admin))

    async def work() -> None:
        async def search(**body: Any) -> dict[str, Any]:
            return await hanging.search(client, body)

        told = await search()
        assert [(one["topic"], one["written"]) for one in told["found"]] == [("a", 5)]
        assert (told["searched"], told["topics"], told["after"]) == (2, 4, "b")
        assert told["problems"][0].startswith("b was not searched")
        # The next topic alone takes too long: it is left out.
        told = await search(after="b")
        assert (told["found"], told["searched"], told["after"]) == ([], 3, "c")
        assert "find-hanging --topic c" in told["problems"][0]
        told = await search(after="c")
        assert [one["topic"] for one in told["found"]] == ["d"]
        assert (told["searched"], told["after"], told["problems"]) == (4, "", [])

    asyncio.run(work())
