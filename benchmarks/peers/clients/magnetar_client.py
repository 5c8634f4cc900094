"""The rows of the comparison for Magnetar."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import magnetar
from benchmarks.peers.clients.magnetar_messages import MessageRows
from benchmarks.peers.clients.magnetar_transactions import TransactionRows
from benchmarks.peers.clients.measuring import Task
from benchmarks.runner import run


class Rows(MessageRows, TransactionRows):
    """The work of one task."""


async def main(arguments: list[str]) -> None:
    task = Task(arguments)
    async with await magnetar.connect(task.text("address")) as client:
        work: Callable[[], Awaitable[None]] = getattr(Rows(client, task), task.text("work"))
        await work()


if __name__ == "__main__":
    run(main(sys.argv[1:]))
