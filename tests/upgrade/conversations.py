"""Commands of a client, recorded as bytes, and sent again to servers of a later version."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import Any

from tests.waiting import until

from magnetar_core.errors import MagnetarError, from_wire
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.transport import Link, Transport
from magnetar_core.wire import service_pb2

CLUSTER_FIELDS = ("cluster_id", "membership_version", "cluster_hash")

# A frame that was sent: number of the link, its service, the bytes.
Sent = dict[str, Any]


class Recorder(Transport):
    """A transport that keeps what is sent, in order, and what each command was answered with."""

    def __init__(self) -> None:
        self._transport = GrpcTransport()
        self._link_count = 0
        self.sent: list[Sent] = []
        # By link and request id: the name of the answer.
        self.answers: dict[str, str] = {}

    async def connect(
        self,
        address: str,
        service: str,
        on_frame: Callable[[Carried], None],
        on_closed: Callable[[], None],
    ) -> Link:
        number = self._link_count
        self._link_count += 1

        def note(frame: Carried) -> None:
            for command in frame.commands:
                if command.request_id:
                    answer = command.WhichOneof("body") or ""
                    self.answers.setdefault(f"{number}/{command.request_id}", answer)
            on_frame(frame)

        link = await self._transport.connect(address, service, note, on_closed)
        return _RecordedLink(link, number, service, self.sent)

    async def close(self) -> None:
        await self._transport.close()


class _RecordedLink(Link):
    def __init__(self, link: Link, number: int, service: str, sent: list[Sent]) -> None:
        self._link = link
        self._place = {"link": number, "service": service}
        self._sent = sent

    def write(self, frame: bytes) -> None:
        content = base64.b64encode(frame).decode()
        self._sent.append({**self._place, "frame": content})
        self._link.write(frame)

    async def drain(self) -> None:
        await self._link.drain()

    def close(self) -> None:
        self._link.close()


async def say_again(
    sent: list[Sent], expected: Mapping[str, str], addresses: Mapping[str, str]
) -> list[str]:
    """Send recorded frames to other servers, each after the answers to the one before.

    Args:
        expected: the answers that were recorded.
        addresses: of each service.
    Returns:
        The answers that differ.

    A Hello names the cluster that the client knows from its first broker. There it was another one,
    so this alone is replaced. A command that is refused for a moment is sent again, as every client
    does: for example, a broker that has just started may not know a new transaction yet.
    """
    transport = GrpcTransport()
    cluster: dict[str, Any] = {}
    links: dict[int, Link] = {}
    found: dict[str, str] = {}
    errors: dict[str, MagnetarError] = {}
    arrived = asyncio.Condition()
    notified: set[asyncio.Task[None]] = set()

    def listener(number: int) -> Callable[[Carried], None]:
        async def notify() -> None:
            async with arrived:
                arrived.notify_all()

        def on_frame(frame: Carried) -> None:
            for command in frame.commands:
                if command.HasField("hello_response"):
                    for name in CLUSTER_FIELDS:
                        cluster[name] = getattr(command.hello_response, name)
                if command.request_id:
                    key = f"{number}/{command.request_id}"
                    found.setdefault(key, command.WhichOneof("body") or "")
                    if command.HasField("error"):
                        errors[key] = from_wire(command.error)
            task = asyncio.get_running_loop().create_task(notify())
            notified.add(task)
            task.add_done_callback(notified.discard)

        return on_frame

    async def all_accepted(number: int, frame: service_pb2.Frame) -> bool:
        """Send the commands and await the answers; the frame keeps what is to be sent again."""
        links[number].write(frame.SerializeToString())
        by_key = {f"{number}/{command.request_id}": command for command in frame.commands}
        async with asyncio.timeout(20), arrived:
            await arrived.wait_for(lambda: by_key.keys() & expected.keys() <= found.keys())
        again = [key for key in by_key if key in errors and is_refused_for_a_moment(key)]
        kept = [by_key[key] for key in again]
        del frame.commands[:]
        frame.commands.extend(kept)
        for key in again:
            del found[key], errors[key]
        return not again

    def is_refused_for_a_moment(key: str) -> bool:
        return errors[key].retriable and expected.get(key) != "error"

    try:
        for one in sent:
            number = one["link"]
            if number not in links:
                links[number] = await transport.connect(
                    addresses[one["service"]], one["service"], listener(number), lambda: None
                )
            frame = service_pb2.Frame.FromString(base64.b64decode(one["frame"]))
            for each in frame.commands:
                if each.HasField("hello") and each.hello.cluster_hash:
                    for name in CLUSTER_FIELDS:
                        setattr(each.hello, name, cluster[name])
            await until(lambda number=number, frame=frame: all_accepted(number, frame))  # type: ignore[misc]
    finally:
        await transport.close()
    return [
        f"{key}: {found.get(key)} {errors.get(key, '')}, and {name} was recorded"
        for key, name in expected.items()
        if found.get(key) != name
    ]
