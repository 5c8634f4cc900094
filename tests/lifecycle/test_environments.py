"""Processes in which other packages have replaced the clock, sockets or threads."""

from __future__ import annotations

import pytest
from tests.lifecycle.programs import Scene

ROUND_TRIP = """
def round_trip(client):
    producer = client.create_producer(TOPIC)
    producer.send(b"x"); producer.send_nowait(b"y"); producer.flush()
    consumer = client.subscribe(TOPIC, "s", initial_position="earliest")
    print([consumer.receive(timeout_s=60).value for _ in range(2)])
async def async_trip():
    async with await magnetar.connect(ADDRESS) as client:
        producer = await client.create_producer(TOPIC)
        await producer.send(b"x"); producer.send_nowait(b"y"); await producer.flush()
        consumer = await client.subscribe(TOPIC, "s", initial_position="earliest")
        print([(await consumer.receive(timeout_s=60)).value for _ in range(2)])
"""
RIGHT = "[b'x', b'y']\n"


@pytest.mark.parametrize("patch", ["monkey.patch_all()", "None"], ids=["before", "after"])
def test_greenlets_share_a_client(scene: Scene, patch: str) -> None:
    """gunicorn -k gevent, celery -P gevent: a call of one greenlet does not stop the others."""
    pytest.importorskip("gevent", reason="make install: gevent is missing")
    topic = scene.topic()
    program = """
from gevent import monkey; monkey.patch_all()
import gevent
client = blocking.connect(ADDRESS); producer = client.create_producer(TOPIC)
sent, turns = [], 0
def send():
    for _ in range(20): producer.send(b"x")
    sent.append(1)
def turn():
    global turns
    while len(sent) < 5: gevent.sleep(0); turns += 1
gevent.joinall([*(gevent.spawn(send) for _ in range(5)), gevent.spawn(turn)], raise_error=True)
print(sum(1 for _ in client.read(TOPIC, 0)), turns > 20)
client.close()
"""
    first = f"from gevent import monkey; {patch}\n"
    ended = scene.run(program, topic, first=first)
    assert (ended.status, ended.out) == (0, "100 True\n"), ended.err


def test_sockets_of_gevent_without_its_threads_are_refused_at_once(scene: Scene) -> None:
    pytest.importorskip("gevent", reason="make install: gevent is missing")
    program = """
try: blocking.connect(ADDRESS)
except magnetar.UnsupportedEnvironment as error: print(error)
"""
    first = "from gevent import monkey; monkey.patch_all(thread=False)\n"
    ended = scene.run(program, scene.topic(), first=first)
    assert ended.status == 0, ended.err
    assert "call gevent.monkey.patch_all() without thread=False" in ended.out


@pytest.mark.parametrize("how", ["", "tick=True", "real_asyncio=True"])
def test_a_blocking_client_works_under_a_frozen_clock(scene: Scene, how: str) -> None:
    """send() never returned: its timers had the frozen clock."""
    pytest.importorskip("freezegun", reason="make install: freezegun is missing")
    program = f"""
import freezegun
from freezegun import freeze_time
{ROUND_TRIP}
with freeze_time("2020-01-01", {how}), blocking.connect(ADDRESS) as client: round_trip(client)
client = blocking.connect(ADDRESS)
with freeze_time("2020-01-01", {how}): client.create_producer(TOPIC).send(b"z")
client.close()
"""
    ended = scene.run(program, scene.topic())
    assert (ended.status, ended.out) == (0, RIGHT), ended.err


def test_an_asyncio_client_works_where_asyncio_does(scene: Scene) -> None:
    pytest.importorskip("freezegun", reason="make install: freezegun is missing")
    program = f"""
from freezegun import freeze_time
{ROUND_TRIP}
with freeze_time("2020-01-01", real_asyncio=True): asyncio.run(async_trip())
"""
    ended = scene.run(program, scene.topic())
    assert (ended.status, ended.out) == (0, RIGHT), ended.err


@pytest.mark.parametrize("how", ["", "tick=True"])
def test_a_frozen_clock_is_refused_at_once(scene: Scene, how: str) -> None:
    """connect() waited for ever, whatever its timeouts."""
    pytest.importorskip("freezegun", reason="make install: freezegun is missing")
    program = f"""
from freezegun import freeze_time
{ROUND_TRIP}
with freeze_time("2020-01-01", {how}):
    try: asyncio.run(async_trip())
    except magnetar.UnsupportedEnvironment as error: print(error)
"""
    ended = scene.run(program, scene.topic())
    assert ended.status == 0, ended.err
    assert "freeze_time(..., real_asyncio=True)" in ended.out


def test_a_client_that_was_imported_under_a_frozen_clock_refuses_it(scene: Scene) -> None:
    pytest.importorskip("freezegun", reason="make install: freezegun is missing")
    program = """
try: blocking.connect(ADDRESS)
except magnetar.UnsupportedEnvironment as error: print(error)
"""
    first = "from freezegun import freeze_time; freeze_time('2020-01-01').start()\n"
    ended = scene.run(program, scene.topic(), first=first)
    assert ended.status == 0, ended.err
    assert "import magnetar before it" in ended.out
