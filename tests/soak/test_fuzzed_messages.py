"""A million damaged and random frames and requests: servers stay up, small, and serve the others.

FUZZ_MESSAGES=20000 sends fewer. With `-s` the figures are shown for success too.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import psutil
import pytest
from tests.access.roles import OWNER, READER, WRITER
from tests.certificates import Authority
from tests.cli.running import Standalone, running_standalone
from tests.soak.fuzzing_client import Sent, Target
from tests.system.programs import values
from tests.tokens import Maker, jwks
from tests.waiting import until

import magnetar

MESSAGES = int(os.environ.get("FUZZ_MESSAGES", "1000000"))
BROKER, COORDINATOR = "Broker", "TransactionCoordinator"
ROUND = 25_000
OTHERS_S = 60.0
# From when a tenth was sent until the end: what was stored, and what allocators keep.
GROWTH_BYTES_MAX = 64 << 20
# Links among servers come and go.
LINKS_MORE_MAX = 4

PRINCIPALS = ("nobody", "reader", "writer", "admin")
ACCESS = f"""
[principals]
server = ["coordinator", "broker"]
other = ["admin"]
admin = ["admin"]
reader = ["reader"]
writer = ["writer", "owner"]
{READER}{WRITER}{OWNER}
[quotas]
"*" = {{ open_txns_max = 100, open_txn_bytes_max = 1_000_000 }}
server = {{}}
other = {{}}
"""


@dataclass
class Figures:
    """Figures of sent frames, and of the servers meanwhile."""

    sent: Sent = field(default_factory=Sent)
    served: int = 0
    seconds: float = 0.0
    began_bytes: dict[str, int] = field(default_factory=dict)
    ended_bytes: dict[str, int] = field(default_factory=dict)

    def told(self, transport: str) -> str:
        sizes = ", ".join(
            f"{name} {self.began_bytes[name] >> 20} -> {size >> 20} MiB"
            for name, size in self.ended_bytes.items()
        )
        sent = self.sent
        return (
            f"{transport}: {sent.frames} frames, {sent.requests} requests, {sent.others} that"
            f" are not gRPC in {self.seconds:.0f} s, beside {self.served} transactions;"
            f" RSS {sizes};"
            f" {sent.codes}"
        )


@dataclass
class Servers:
    """Servers, and how to reach them."""

    standalone: Standalone
    target: Target

    @property
    def processes(self) -> dict[str, psutil.Process]:
        ready = self.standalone.ready()
        return {name: psutil.Process(ready[name]["pid"]) for name in ("broker", "coordinator")}

    async def connect(self) -> magnetar.Client:
        """Return a client that means no harm."""
        ca_file = self.target.ca_file
        return await magnetar.connect(
            self.target.addresses[BROKER],
            tls=magnetar.TlsFiles(ca_file=ca_file) if ca_file else None,
            token=self.target.tokens["other"],
        )

    async def attack(self, seed: int, count: int) -> Sent:
        """Let a stranger send messages, in a process of its own."""
        tokens = {name: self.target.tokens[name] for name in PRINCIPALS}
        told = {"target": asdict(replace(self.target, tokens=tokens)), "seed": seed, "count": count}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.soak.fuzzing_client"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            out, _ = await process.communicate(json.dumps(told).encode())
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0
        return Sent(**json.loads(out))


@contextmanager
def started(directory: Path, *, tls: bool) -> Iterator[Servers]:
    authority, maker = Authority(directory / "authority"), Maker()
    server = authority.sign("server")
    (directory / "keys.json").write_text(jwks(maker))
    (directory / "access.toml").write_text(ACCESS)
    (directory / "token").write_text(maker.token("server", lasts_s=86_400))
    settings = {
        "token_keys_file": str(directory / "keys.json"),
        "token_file": str(directory / "token"),
        "access_file": str(directory / "access.toml"),
    }
    if tls:
        settings |= {
            "tls_certificate_file": server.certificate_file,
            "tls_key_file": server.key_file,
            "tls_ca_file": authority.ca_file,
        }
    section = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    config = directory / "magnetar.toml"
    config.write_text(f"[broker]\n{section}\n[coordinator]\n{section}")
    tokens = {name: maker.token(name, lasts_s=86_400) for name in (*PRINCIPALS, "other")}
    with running_standalone(directory, "--config", str(config)) as standalone:
        ready = standalone.ready()
        addresses = {
            BROKER: ready["broker"]["address"],
            COORDINATOR: ready["coordinator"]["address"],
        }
        yield Servers(standalone, Target(addresses, authority.ca_file if tls else "", tokens))


async def serve(client: magnetar.Client, topic: str) -> None:
    """Write a transaction, and read it."""
    await client.admin.topics.create(topic)
    producer = await client.create_producer(topic)
    txn = await client.begin_transaction()
    await producer.send(b"one", txn=txn)
    await txn.commit(wait_finished=True)
    assert await values(client, topic) == [b"one"]
    await producer.close()
    await client.admin.topics.delete(topic)


@pytest.mark.soak
@pytest.mark.parametrize("transport", ["plain text", "TLS"])
def test_servers_stay_up_and_small_and_serve_the_others(transport: str, tmp_path: Path) -> None:
    figures = Figures()
    messages = MESSAGES // 2
    rounds = max(10, messages // ROUND)

    async def scenario(servers: Servers) -> None:
        processes = servers.processes
        opened = connections(processes)
        async with await servers.connect() as client:
            await serve(client, "before")
            began_s = time.monotonic()
            for number in range(rounds):
                attack = asyncio.create_task(servers.attack(number, messages // rounds))
                while not attack.done():
                    async with asyncio.timeout(OTHERS_S):
                        await serve(client, "known")
                        async with await servers.connect() as newcomer:
                            await serve(newcomer, "new")
                    figures.served += 2
                    await asyncio.wait([attack], timeout=1)
                figures.sent.add(await attack)
                if number == rounds // 10:
                    figures.began_bytes = resident_bytes(processes)
            figures.seconds = time.monotonic() - began_s
            figures.ended_bytes = resident_bytes(processes)
            print(figures.told(transport))
        # Clients of this process may be kept by what is garbage.
        gc.collect()
        await until(lambda: connections(processes) <= opened + LINKS_MORE_MAX)
        assert servers.processes == processes, "a server has been started anew"

    with started(tmp_path, tls=transport == "TLS") as servers:
        asyncio.run(scenario(servers))
    told = figures.told(transport)
    for name, began in figures.began_bytes.items():
        assert figures.ended_bytes[name] - began < GROWTH_BYTES_MAX, told
    assert not {"INTERNAL", "UNKNOWN"} & figures.sent.codes.keys(), told
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:5_000]


def connections(processes: dict[str, psutil.Process]) -> int:
    return sum(len(process.net_connections()) for process in processes.values())


def resident_bytes(processes: dict[str, psutil.Process]) -> dict[str, int]:
    return {name: one.memory_info().rss for name, one in processes.items()}
