"""Standard input, output and error, as terminals, pipes, cron and daemons leave them."""

from __future__ import annotations

import asyncio
import io
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")

STDIN, STDOUT, STDERR = range(3)
# How a descriptor that was closed (`2>&-`) is opened on the null device. Input and output are
# opened the wrong way round: to use them fails with EBADF, as if they were still closed.
_OPENED = {STDIN: os.O_WRONLY, STDOUT: os.O_RDONLY, STDERR: os.O_WRONLY}


def prepare() -> None:
    """Make the standard streams of this process usable; call it before anything opens a file.

    A closed descriptor is opened, since the next file or socket would get its number, and then
    whatever is written to standard error. What cannot be written to standard error is dropped: a
    command goes on when nobody can read its messages. A character that the encoding of the output
    lacks is written as an escape sequence.
    """
    for descriptor, flags in _OPENED.items():
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free.
            assert os.open(os.devnull, flags) == descriptor
    if sys.stdin is None:
        sys.stdin = os.fdopen(STDIN, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(STDOUT, "w", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Messages(STDERR, "wb", closefd=False)),
        encoding=getattr(sys.stderr, "encoding", None),
        errors="backslashreplace",
        line_buffering=True,
    )


class _Messages(io.FileIO):
    """Standard error. What cannot be written is dropped."""

    def write(self, data: object, /) -> int:
        try:
            written = super().write(data)  # type: ignore[arg-type]
        except OSError:
            written = None
        # None: nothing can be written at the moment.
        return len(memoryview(data)) if written is None else written  # type: ignore[arg-type]


def reader_is_gone(error: BaseException) -> bool:
    """Whether an error means that the reader of standard output has closed the pipe."""
    if not isinstance(error, BrokenPipeError):
        return False
    output = select.poll()
    output.register(STDOUT, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in output.poll(0))


def discard_output() -> None:
    """Drop what was printed and not written yet, and whatever is printed from now on."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, STDOUT)
    os.close(null)


@contextmanager
def output_not_needed() -> Iterator[None]:
    """Print what a server goes on without: its output may be closed, full or without a reader."""
    try:
        yield
        sys.stdout.flush()
    except OSError:
        discard_output()


async def read_some(descriptor: int, bytes_max: int) -> bytes:
    """Read what there is, at least a byte; b"" at the end. Cancelling it ends the wait at once.

    Raises:
        OSError: it cannot be read.
    """
    return await _in_daemon_thread(lambda: os.read(descriptor, bytes_max))


async def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data. Cancelling it ends the wait at once; then a part may be written.

    Raises:
        OSError: it cannot be written.
    """

    def write() -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    await _in_daemon_thread(write)


async def _in_daemon_thread(work: Callable[[], Result]) -> Result:
    """Do something that may wait for ever, without keeping the event loop or the process waiting.

    The threads of asyncio are waited for at the end of a process, and so a terminal at which
    nobody types would keep it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def tell(result: Result | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(tell, result, failure)
        except RuntimeError:
            return  # The event loop has ended.

    threading.Thread(target=run, daemon=True, name="standard-stream").start()
    return await done
