"""Names of Kafka's and Pulsar's clients lead to ours."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
from tests.client.fakes import FakeCluster, run

import magnetar
from magnetar import blocking
from magnetar.habits import HABITS

NAMES = [(kind, name) for kind, names in HABITS.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_a_habit_is_not_a_name_here_and_its_remedy_is(kind: str, name: str) -> None:
    for module in (magnetar, blocking):
        if found := getattr(module, kind, None):
            assert not hasattr(found, name)
    shown = getattr(magnetar, kind)
    if found := re.match(r"(\w+)\(", HABITS[kind][name]):
        anywhere = (shown, magnetar.Client, magnetar.Consumer, magnetar.Producer)
        assert any(hasattr(one, found[1]) for one in anywhere), HABITS[kind][name]


def test_a_wrong_name_is_told_what_to_write() -> None:
    async def test(cluster: FakeCluster, client: magnetar.Client) -> None:
        cluster.topic("t")
        with pytest.raises(AttributeError, match=r"'Client' .* 'produce': use create_producer"):
            client.produce("t", b"x")  # type: ignore[attr-defined]
        async with await client.create_producer("t") as producer:
            with pytest.raises(AttributeError, match=r"send_and_wait': use send\(\), which waits"):
                producer.send_and_wait(b"x")  # type: ignore[attr-defined]
            with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
                producer.nonsense()  # type: ignore[attr-defined]
            await producer.send(b"x")
        (message,) = [each async for each in client.read("t")]
        with pytest.raises(AttributeError, match="use properties"):
            message.headers  # type: ignore[attr-defined]  # noqa: B018
        assert copy.copy(message).value == b"x"
        assert pickle.loads(pickle.dumps(magnetar.TopicExists("t"))).args == ("t",)

    run(test)
