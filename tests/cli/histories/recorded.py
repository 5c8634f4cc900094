"""Records a small history of real servers, and writes changed copies of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.histories import history_in, settings_in
from tests.system.processes import BROKER, COORDINATOR, Servers

import magnetar
from magnetar_cli.check.history.judging import Report, judge

# Of a message, a key, a property. No line may have it.
SECRET = "a-secret-that-no-line-has"

Files = Mapping[str, Sequence[bytes]]


@dataclass(frozen=True)
class Recorded:
    """Lines of all files, by their names."""

    files: Files

    def find(self, event: str, **members: object) -> tuple[str, int]:
        """Return the file and the place of the first event like this."""
        for name, lines in self.files.items():
            for place, text in enumerate(lines):
                found = json.loads(text)
                if found["event"] == event and members.items() <= found.items():
                    return name, place
        raise AssertionError(f"there is no {event} with {members}")

    def places(self) -> list[tuple[str, int]]:
        return [(name, place) for name, lines in self.files.items() for place in range(len(lines))]

    def with_lines(self, name: str, lines: Sequence[bytes]) -> Recorded:
        return Recorded({**self.files, name: lines})

    def with_event(
        self, name: str, place: int, change: Callable[[dict[str, Any]], None]
    ) -> Recorded:
        """Change an event, and make its check fit again."""
        members = json.loads(self.files[name][place])
        change(members)
        lines = list(self.files[name])
        lines[place] = line_of(members)
        return self.with_lines(name, lines)

    def without_event(self, name: str, place: int) -> Recorded:
        """Leave an event out as if it had not happened."""
        return self.renumbered(name, [*self.files[name][:place], *self.files[name][place + 1 :]])

    def moved(self, name: str, place: int, to: int) -> Recorded:
        """Let an event happen earlier."""
        lines = list(self.files[name])
        lines.insert(to, lines.pop(place))
        return self.renumbered(name, lines)

    def renumbered(self, name: str, lines: Sequence[bytes]) -> Recorded:
        """Give other lines to a file, with the numbers and checks of lines without damage."""
        files = dict(self.files)
        files[name] = [
            line_of(json.loads(text) | {"line": number}) for number, text in enumerate(lines)
        ]
        for other, (first, *rest) in self.files.items():
            begun = json.loads(first)
            if name.endswith(f".{begun.get('life_before', 0):015}.history.jsonl"):
                files[other] = [line_of(begun | {"last_line_before": len(lines) - 1}), *rest]
        return Recorded(files)

    def judged(self, directory: Path) -> Report:
        for name, lines in self.files.items():
            (directory / name).write_bytes(b"".join(lines))
        return judge([str(directory)])


def line_of(members: Mapping[str, Any]) -> bytes:
    """Return a line whose check fits."""
    without = {name: value for name, value in members.items() if name != "crc"}
    text = json.dumps(without, separators=(",", ":"))[:-1].encode()
    return b'%b,"crc":"%08x"}\n' % (text, crc32(text))


def record(directory: Path) -> Recorded:
    """Let servers work, kill the broker and start it again, and stop them."""
    counts = {BROKER: 1, COORDINATOR: 1}
    servers = Servers(directory, settings_in(directory), counts=counts)
    with servers.running():
        asyncio.run(_use(servers))
        servers.stop()
    return Recorded(
        {
            path.name: path.read_bytes().splitlines(keepends=True)
            for path in sorted(history_in(directory).iterdir())
        }
    )


async def _use(servers: Servers) -> None:
    value = SECRET.encode()
    async with await magnetar.connect(servers.address) as client:
        await client.admin.topics.create("orders", partitions=2)
        async with await client.subscribe(
            "orders", "clerk", type="shared", initial_position="earliest"
        ) as consumer:
            producer = await client.create_producer("orders")
            await producer.send(value, key=value, partition=0)
            txn = await client.begin_transaction()
            for partition in (0, 1):
                await producer.send(
                    value, properties={SECRET: SECRET}, partition=partition, txn=txn
                )
            await consumer.ack(await consumer.receive(10), txn=txn)
            await txn.commit(wait_finished=True)
            aborted = await client.begin_transaction()
            await producer.send(value, partition=0, txn=aborted)
            await aborted.abort()
            decided = await client.begin_transaction()
            await producer.send(value, partition=1, txn=decided)
            servers.kill(BROKER)
            await decided.commit()
            await asyncio.to_thread(servers.start, BROKER)
            await decided.commit(wait_finished=True)
