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
from typing import TYPE_CHECKING, TextIO, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Buffer

Result = TypeVar("Result")

STDIN, STDOUT, STDERR = range(3)
# How a descriptor that was closed (`2>&-`) is opened on the null device. Input and output are
# opened the wrong way round: to use them fails with EBADF, as if they were still closed.
_OPENED = {STDIN: os.O_WRONLY, STDOUT: os.O_RDONLY, STDERR: os.O_WRONLY}


def prepare() -> None:
    """Make the standard streams of this process usable; call it before anything opens a file.

    A closed descriptor is opened, since the next file or socket would get its number, and then
    whatever is printed. A command does its work and has its exit status although the reader of its
    output closes the pipe, as `head` does, and although its messages cannot be read. A character
    that the encoding of the output lacks is written as an escape sequence.
    """
    for descriptor, flags in _OPENED.items():
        try:
            os.fstat(descriptor)
        except OSError:
            # It gets this number, the lowest that is free. Processes that are started have it too.
            os.set_inheritable(os.open(os.devnull, flags), True)
    if sys.stdin is None:
        sys.stdin = os.fdopen(STDIN, closefd=False)
    # Without buffers (PYTHONUNBUFFERED), its text goes on at once.
    at_once = os.isatty(STDOUT) or bool(getattr(sys.stdout, "write_through", False))
    sys.stdout = _text(_Output(STDOUT, "wb", closefd=False), sys.stdout, line_buffering=at_once)
    sys.stderr = _text(_Messages(STDERR, "wb", closefd=False), sys.stderr, line_buffering=True)


def _text(raw: io.FileIO, before: TextIO | None, *, line_buffering: bool) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=None if before is None else before.encoding,
        errors="backslashreplace",
        line_buffering=line_buffering,
    )


class _Output(io.FileIO):
    """Standard output. What is printed after its reader has closed the pipe is dropped."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            discard_output()
            return len(memoryview(data))


class _Messages(io.FileIO):
    """Standard error; text that cannot be written is dropped."""

    def write(self, data: Buffer, /) -> int:
        try:
            written = super().write(data)
        except OSError:
            written = None
        # None: nothing can be written at the moment.
        return len(memoryview(data)) if written is None else written


def reader_is_gone(error: BaseException) -> bool:
    """Whether an error of `write_all` means that the reader of standard output has closed it."""
    if not isinstance(error, BrokenPipeError):
        return False
    output = select.poll()
    output.register(STDOUT, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in output.poll(0))


def discard_output() -> None:
    """Drop text that was printed and not written yet, and all text from now on."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, STDOUT)
    os.close(null)


@contextmanager
def output_not_needed() -> Iterator[None]:
    """Print text that a server does not need: its output may be closed or full."""
    try:
        yield
        sys.stdout.flush()
    except OSError:
        discard_output()


async def read_some(descriptor: int, bytes_max: int) -> bytes:
    """Read the available bytes, at least one; b"" at the end. Cancelling it ends the wait at once.

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

    The threads of asyncio are waited for at the end of a process, and so a terminal without input
    would keep it.
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
