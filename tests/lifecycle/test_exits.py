"""Programs that end without close(): nothing hangs, and nothing is lost without a word."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.cli.running import running_standalone
from tests.lifecycle.programs import Scene
from tests.waiting import wait_until

# What a program leaves behind, and what would wait for the client's thread when Python ends.
LEFT_BEHIND = {
    "an iterator": """
pieces = client.read(TOPIC, 0, follow_period_s=0.1)
next(pieces)
""",
    "an iterator in a cycle": """
class Knot: pass
knot = Knot(); knot.self = knot
knot.pieces = client.read(TOPIC, 0, follow_period_s=0.1)
next(knot.pieces)
""",
    "a consumer in the middle of a loop": """
consumer = client.subscribe(TOPIC, "s", initial_position="earliest")
messages = iter(consumer)
next(messages)
""",
    "a finaliser that closes": """
class Holder:
    def __init__(self): self.client = blocking.connect(ADDRESS)
    def __del__(self): self.client.close()
holder = Holder()
""",
    "a finaliser that closes, in a cycle": """
class Holder:
    def __init__(self): self.client, self.me = blocking.connect(ADDRESS), self
    def __del__(self): self.client.close()
Holder()
""",
    "a finaliser that closes, in a threading.local": """
class Holder:
    def __init__(self): self.client = blocking.connect(ADDRESS)
    def __del__(self): self.client.close()
local = threading.local()
local.holder = Holder()
""",
    "a finaliser that sends": """
class Holder:
    def __init__(self): self.producer = client.create_producer(TOPIC)
    def __del__(self):
        with contextlib.suppress(magnetar.ClientClosed): self.producer.send(b"late")
holder = Holder()
""",
    "a generator with a client in it": """
def messages():
    with blocking.connect(ADDRESS) as own:
        yield from own.read(TOPIC, 0)
pieces = messages()
next(pieces)
""",
    "a context manager that was entered": """
@contextlib.contextmanager
def connected():
    with blocking.connect(ADDRESS) as own: yield own
entered = connected()
entered.__enter__()
""",
    "a daemon thread that receives": """
consumer = client.subscribe(TOPIC, "s")
waits = threading.Event()
def work():
    waits.set()
    with contextlib.suppress(magnetar.ClientClosed): consumer.receive()
threading.Thread(target=work, daemon=True).start()
waits.wait()
""",
    "a callback that never returns": """
called = threading.Event()
def on_assigned(partitions):
    called.set()
    threading.Event().wait()
consumer = client.consumer_group("g-" + TOPIC, TOPIC, on_assigned=on_assigned)
called.wait()
""",
}


# Programs that end with other statuses, too.
WITH_ANY_STATUS = ("an iterator", "a finaliser that closes", "a daemon thread that receives")


@pytest.mark.parametrize(
    ("left", "status"),
    [
        *((left, 0) for left in LEFT_BEHIND),
        *((left, status) for left in WITH_ANY_STATUS for status in (1, 3)),
    ],
)
def test_a_program_ends_whatever_it_leaves_behind(scene: Scene, left: str, status: int) -> None:
    """It hung for ever: daemon threads are frozen when Python finalises objects."""
    topic = scene.topic()
    end = {0: "", 1: "raise ValueError('of the program')", 3: "sys.exit(3)"}[status]
    program = f"""
client = blocking.connect(ADDRESS)
client.create_producer(TOPIC).send(b"x")
{LEFT_BEHIND[left]}
print("the end", flush=True)
{end}
"""
    ended = scene.run(program, topic)
    assert ended.status == status, ended.err
    assert ended.out == "the end\n"
    assert ended.err.count("Traceback") == (status == 1), ended.err
    assert "Exception ignored" not in ended.err


BUFFERED = """
client = blocking.connect(ADDRESS)
producer = client.create_producer(TOPIC, linger_ms=60_000)
for number in range(1_000): producer.send_nowait(b"%d" % number)
"""
IN_FUNCTION = f"def work():{BUFFERED.replace(chr(10), chr(10) + '    ')}\n"
ALL = [b"%d" % number for number in range(1_000)]

ENDS = {
    "the end of the program": (BUFFERED, 0),
    "sys.exit": (BUFFERED + "sys.exit(7)", 7),
    "an exception": (BUFFERED + "raise ValueError", 1),
    "Ctrl-C": (BUFFERED + "os.kill(os.getpid(), 2)", -2),
    # Registered after the import, so it is called before the client closes.
    "a function of atexit": (IN_FUNCTION + "atexit.register(work)", 0),
    "a thread that goes on": (
        IN_FUNCTION
        + """
def later():
    threading.main_thread().join()
    work()
threading.Thread(target=later).start()
""",
        0,
    ),
    "a client that was dropped": (IN_FUNCTION + "work(); gc.collect()", 0),
}


@pytest.mark.parametrize("end", ENDS)
def test_messages_that_wait_are_stored_at_the_end(scene: Scene, end: str) -> None:
    program, status = ENDS[end]
    topic = scene.topic()
    ended = scene.run(program, topic)
    assert ended.status == status, ended.err
    assert "magnetar:" not in ended.err
    assert scene.stored(topic) == ALL


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_messages_of_a_worker_of_multiprocessing_are_stored_at_its_end(
    scene: Scene, method: str, tmp_path: Path
) -> None:
    """Such workers call no function of atexit, unless they were spawned."""
    topic = scene.topic()
    (tmp_path / "program.py").write_text(
        "from magnetar import blocking\n" + IN_FUNCTION.replace("work()", "work(ADDRESS, TOPIC)")
    )
    ended = scene.run(
        f"""
sys.path.insert(0, {str(tmp_path)!r})
import multiprocessing, program
if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    worker = context.Process(target=program.work, args=(ADDRESS, TOPIC))
    worker.start(); worker.join(); sys.exit(worker.exitcode)
""",
        topic,
    )
    assert ended.status == 0, ended.err
    assert scene.stored(topic) == ALL


def test_what_the_servers_do_not_take_in_time_is_counted(tmp_path: Path) -> None:
    """The servers are stopped: the program ends by itself, and names the unconfirmed messages."""
    with running_standalone(tmp_path) as running:
        scene = Scene(running.environ["MAGNETAR_BROKER"])
        topic, other = scene.topic(), scene.topic()
        process = running.ready()["broker"]["pid"]
        program = f"""
client = blocking.connect(ADDRESS)
producer, other = client.create_producer(TOPIC), client.create_producer({other!r})
producer.send(b"stored")
os.kill({process}, {signal.SIGSTOP.value})
for number in range(30): producer.send_nowait(b"%d" % number)
for number in range(12): other.send_nowait(b"%d" % number)
sys.exit(3)
"""
        try:
            ended = scene.run(program, topic)
        finally:
            os.kill(process, signal.SIGCONT)
        assert ended.status == 3
        assert (
            "a client was not closed, and 42 messages were not stored or confirmed:"
            f" 30 to {topic!r}, 12 to {other!r}; call flush() or close() before the end"
        ) in ended.err
        wait_until(lambda: scene.stored(topic)[0] == b"stored")


def test_what_the_servers_refuse_is_counted(scene: Scene) -> None:
    topic = scene.topic()
    program = """
client = blocking.connect(ADDRESS)
producer = client.create_producer(TOPIC, linger_ms=60_000)
for number in range(5): producer.send_nowait(b"x")
client.admin.topics.delete(TOPIC)
"""
    ended = scene.run(program, topic)
    assert ended.status == 0
    assert f"5 messages were not stored or confirmed: 5 to {topic!r}" in ended.err


def test_an_asyncio_program_is_told_what_was_not_sent(scene: Scene) -> None:
    topic = scene.topic()
    program = """
async def main():
    global client
    client = await magnetar.connect(ADDRESS)
    producer = await client.create_producer(TOPIC, linger_ms=60_000)
    for number in range(1_000): producer.send_nowait(b"x")
asyncio.run(main())
print("the loop has ended", file=sys.stderr)
"""
    ended = scene.run(program, topic, "-W", "always::ResourceWarning")
    assert ended.status == 0
    assert "ResourceWarning: unclosed magnetar.Client" in ended.err
    told = f"1000 messages were not stored or confirmed: 1000 to {topic!r}"
    assert ended.err.count(told) == 1
    assert ended.err.index(told) < ended.err.index("the loop has ended")
    assert "destroyed" not in ended.err
    assert "Traceback" not in ended.err
    assert scene.stored(topic) == []


@pytest.mark.parametrize(
    "program",
    [
        "client = blocking.connect(ADDRESS)",
        "blocking.connect(ADDRESS); gc.collect()",
        "asyncio.run(magnetar.connect(ADDRESS)); gc.collect()",
    ],
)
def test_an_unclosed_client_is_a_resource_warning_once(scene: Scene, program: str) -> None:
    ended = scene.run(program, scene.topic(), "-W", "always::ResourceWarning")
    assert ended.status == 0
    assert ended.err.count("ResourceWarning: unclosed magnetar.") == 1, ended.err
    assert "magnetar: a client was not closed" not in ended.err


def test_closed_clients_leave_no_word(scene: Scene) -> None:
    topic = scene.topic()
    program = """
async def main():
    async with await magnetar.connect(ADDRESS) as client:
        await (await client.create_producer(TOPIC)).send(b"x")
        await client.admin.topics.list()
asyncio.run(main())
with blocking.connect(ADDRESS) as client:
    client.create_producer(TOPIC).send_nowait(b"x")
    for message in client.read(TOPIC): break
gc.collect()
"""
    ended = scene.run(program, topic, "-X", "dev", "-W", "error")
    assert ended.status == 0
    slow = [one for one in ended.err.splitlines() if not one.startswith("Executing <")]
    assert slow == []
    assert scene.stored(topic) == [b"x", b"x"]
