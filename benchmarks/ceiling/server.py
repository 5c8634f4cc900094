"""`python -m benchmarks.ceiling.server`: a bare broker, a bare coordinator, or a sink of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import click

from benchmarks.ceiling.bare import ROWS, BareCommit, Command, Handler, Peer, serve
from benchmarks.runner import run
from magnetar_storage.rocksdb.engine import RocksStore

NEW, ADD, ADD_SUBSCRIPTION, END, SEND, ACK, END_PART, END_ACKS, BYTES = range(1, 10)
# Of a partition's or subscription's name, and of an ack, as they travel and are stored.
NAME_BYTES = 40
ACK_BYTES = 69

Reply = Callable[[int], None]


def key(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "big") for number in numbers)


def broker(commit: BareCommit) -> Handler:
    """Stores messages and pending acks; then markers or cursors, and the transaction's status."""

    def handle(command: Command, reply: Reply) -> None:
        number, kind, about, payload = command
        if kind == SEND:
            commit.put(key(1, about, number), payload, lambda: reply(about))
        elif kind == ACK:
            commit.put(key(4, about), payload, lambda: reply(about))
        elif kind == END_ACKS:
            commit.delete(key(4, about))
            commit.put(key(5, 0), payload)
            commit.put(key(6, about), b"committed", lambda: reply(about))
        else:
            commit.put(key(2, about, number), payload)
            commit.put(key(3, about), b"committed", lambda: reply(about))

    return handle


def coordinator(commit: BareCommit, broker_peer: Peer) -> Handler:
    """Keeps a record for each step; ends at every participant once a decision is durable."""
    count = 0
    # By transaction: how each of its participants is told.
    participants: dict[int, list[int]] = {}

    def end(txn: int, reply: Reply) -> None:
        reply(txn)
        kinds = participants.pop(txn)
        left = len(kinds)

        def ended(_: int) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                for step in (NEW, ADD, ADD_SUBSCRIPTION, END):
                    commit.delete(key(txn, step))
                commit.put(key(0, txn), b"committed")

        for kind in kinds:
            broker_peer.ask(kind, txn, b"marker", ended)

    def handle(command: Command, reply: Reply) -> None:
        nonlocal count
        _, kind, about, payload = command
        if kind == NEW:
            count += 1
            about = count
            participants[about] = []
        txn = about
        if kind == ADD:
            participants[txn] += [END_PART] * (len(payload) // NAME_BYTES)
        elif kind == ADD_SUBSCRIPTION:
            participants[txn] += [END_ACKS] * (len(payload) // NAME_BYTES)
        then = (lambda: end(txn, reply)) if kind == END else (lambda: reply(txn))
        commit.put(key(txn, kind), payload or b"record", then)

    return handle


def sink() -> Handler:
    """Answers once for each command, and keeps nothing."""

    def handle(command: Command, reply: Reply) -> None:
        reply(command[2])

    return handle


@click.command()
@click.argument("role", type=click.Choice(["broker", "coordinator", "sink"]))
@click.option("--port", type=int, required=True)
@click.option("--broker", "broker_address", default="")
@click.option("--data-dir", type=click.Path(path_type=Path))
def main(role: str, port: int, broker_address: str, data_dir: Path | None) -> None:
    async def work() -> None:
        if role == "sink":
            await serve(port, sink())
            return
        assert data_dir is not None
        commit = BareCommit(RocksStore.open(data_dir, [ROWS], payload_families=[ROWS]))
        committing = asyncio.ensure_future(commit.run())
        if role == "broker":
            await serve(port, broker(commit))
        else:
            await serve(port, coordinator(commit, await Peer.connect(broker_address)))
        await committing

    run(work())


if __name__ == "__main__":
    main()
