"""Children that are forked from programs with live clients: process pools, task queues, servers.

Nothing crashes, the parent goes on, and a child connects like any other process.
"""

from __future__ import annotations

import pytest
from tests.lifecycle.programs import Scene

CHILDREN = 6

# What the parent has, and what it does with that after its children have ended.
PARENTS = {
    "nothing": ("", "", ""),
    "a blocking client": (
        "client = blocking.connect(ADDRESS); producer = client.create_producer(TOPIC)",
        "producer.send(b'parent')",
        "client.close()",
    ),
    "a blocking client that sends": (
        """
client = blocking.connect(ADDRESS); producer = client.create_producer(TOPIC)
ends = threading.Event()
def work():
    while not ends.is_set(): producer.send(b"busy")
thread = threading.Thread(target=work); thread.start()
""",
        "ends.set(); thread.join(); producer.send(b'parent')",
        "client.close()",
    ),
    "a closed client": ("with blocking.connect(ADDRESS): pass", "", ""),
    "a consumer": (
        """
client = blocking.connect(ADDRESS); producer = client.create_producer(TOPIC)
consumer = client.subscribe(TOPIC, "s", initial_position="earliest")
producer.send(b"parent")
message = consumer.receive()
""",
        "consumer.ack(message); assert consumer.receive().redelivery_count == 0",
        "client.close()",
    ),
}
BLOCKING = """
def connect():
    with blocking.connect(ADDRESS) as own: own.create_producer(TOPIC).send(b"child")
"""
ASYNCIO = """
def connect():
    async def main():
        async with await magnetar.connect(ADDRESS) as own:
            await (await own.create_producer(TOPIC)).send(b"child")
    asyncio.run(main())
"""
FORKS = f"""
def fork(end):
    pid = os.fork()
    if pid == 0:
        try: connect()
        except BaseException:
            import traceback; traceback.print_exc(); os._exit(1)
        if end == "os._exit": os._exit(0)
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def fork_all(*ends): return [fork(end) for end in ends * ({CHILDREN} // len(ends))]
"""


@pytest.mark.parametrize("parent", PARENTS)
@pytest.mark.parametrize("child", [BLOCKING, ASYNCIO], ids=["blocking", "asyncio"])
def test_a_forked_child_connects(scene: Scene, parent: str, child: str) -> None:
    """One in eight children crashed, even if it did nothing, and the others hung."""
    has, does, closes = PARENTS[parent]
    topic = scene.topic()
    forks = "print(fork_all('os._exit', 'sys.exit'), flush=True)"
    program = "\n".join((child, FORKS, has, forks, does, closes))
    ended = scene.run(program, topic)
    assert ended.status == 0, ended.err
    assert ended.out == f"{[0] * CHILDREN}\n", ended.err
    assert ended.err == ""
    stored = [one for one in scene.stored(topic) if one != b"busy"]
    assert stored.count(b"child") == CHILDREN
    if does:
        assert b"parent" in stored


@pytest.mark.parametrize("child", [BLOCKING, ASYNCIO], ids=["blocking", "asyncio"])
def test_a_child_of_an_asyncio_program_connects(scene: Scene, child: str) -> None:
    topic = scene.topic()
    program = f"""{child}{FORKS}
async def main():
    async with await magnetar.connect(ADDRESS) as client:
        producer = await client.create_producer(TOPIC)
        await producer.send(b"parent")
        # Not in the thread of the event loop: that has a running loop in the child, too.
        print(await asyncio.to_thread(fork_all, "os._exit"), flush=True)
        await producer.send(b"parent")
asyncio.run(main())
"""
    ended = scene.run(program, topic)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == f"{[0] * CHILDREN}\n"
    assert scene.stored(topic).count(b"parent") == 2


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_pool_of_processes_works_beside_a_live_client(scene: Scene, method: str) -> None:
    """With fork it was a BrokenProcessPool."""
    topic = scene.topic()
    program = f"""
import concurrent.futures, multiprocessing
client = blocking.connect(ADDRESS); client.create_producer(TOPIC).send(b"parent")
context = multiprocessing.get_context("{method}")
with concurrent.futures.ProcessPoolExecutor(3, mp_context=context) as pool:
    names = list(pool.map(blocking_names, [ADDRESS] * 12))
print(len(names), flush=True)
client.close()
"""
    names = """
from tests.lifecycle.work import blocking_names
"""
    ended = scene.run(names + program, topic)
    assert (ended.status, ended.out) == (0, "12\n"), ended.err


def test_the_clients_of_the_parent_are_refused_in_the_child(scene: Scene) -> None:
    """At once: their threads and event loops run in the parent alone."""
    program = """
def refused(call):
    try: call()
    except magnetar.UsedAfterFork as error:
        assert "connect again here" in str(error)
        return True
    return False
async def main():
    client = await magnetar.connect(ADDRESS)
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC, "s")
    txn = await client.begin_transaction()
    blocked = blocking.connect(ADDRESS)
    sends = blocked.create_producer(TOPIC)
    def child():
        def run(work): return lambda: asyncio.run(work())
        calls = [
            lambda: sends.send(b"x"), lambda: blocked.admin.topics.list(),
            lambda: producer.send_nowait(b"x"), lambda: client.transactional_producer("id"),
            run(lambda: producer.send(b"x")), run(lambda: producer.flush()),
            run(lambda: client.admin.topics.list()), run(lambda: consumer.receive()),
            run(lambda: txn.commit()), run(lambda: client.close()), run(lambda: consumer.close()),
        ]
        blocked.close()
        print([refused(call) for call in calls], flush=True)
    def fork():
        pid = os.fork()
        if pid == 0: child(); os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert await asyncio.to_thread(fork) == 0
    await producer.send(b"x"); await consumer.receive(); await txn.abort()
    sends.send(b"x"); blocked.close(); await client.close()
asyncio.run(main())
"""
    ended = scene.run(program, scene.topic())
    assert (ended.status, ended.out) == (0, f"{[True] * 11}\n"), ended.err


def test_a_child_does_not_keep_its_parents_connections(scene: Scene) -> None:
    """A server would not notice the parent's end while a child has copies of them."""
    program = """
def connections():
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    inodes = {os.readlink(one) for one in links if os.path.exists(one)}
    tcp = open("/proc/self/net/tcp").read().splitlines()[1:]
    return sum(f"socket:[{line.split()[9]}]" in inodes for line in tcp)
client = blocking.connect(ADDRESS)
mine = connections()
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, b"%d" % connections()); os._exit(0)
os.wait()
print(mine, int(os.read(read, 9)), connections() == mine)
client.admin.topics.list(); client.close()
"""
    ended = scene.run(program, scene.topic())
    assert (ended.status, ended.out) == (0, "2 0 True\n"), ended.err
