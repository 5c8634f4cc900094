"""Processes that need not import the product: one that has imported it forks them.

Until a server is ready, it takes 0.4 s of processor time, 0.3 s of them for imports, and the tests
start hundreds. What is forked runs as `python -m magnetar_cli` does, from its first line to the
interpreter's end, with its own environment, descriptors and directory; only its command line in
/proc is that of the process it came from. `tests/cli` starts clusters as users do.

It is a child of the one who asked for it, as a process that was executed would be: two forks make
it an orphan, and the asking process adopts orphans for that moment (PR_SET_CHILD_SUBREAPER).
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

PROGRAM = "magnetar_cli"
# What servers and commands import where they need it.
IMPORTED_EARLY = (
    "magnetar.blocking",
    "magnetar_broker.broker",
    "magnetar_broker.keys",
    "magnetar_cli.program",
    "magnetar_cli.servers.broker",
    "magnetar_cli.servers.coordinator",
    "magnetar_cli.servers.member_process",
    "magnetar_cli.servers.open_store",
    "magnetar_cli.servers.server_process",
    "magnetar_cli.servers.shard_servers",
    "magnetar_cli.with_client",
    "magnetar_coordinator.coordinator",
    "magnetar_core.process.settings",
    "magnetar_storage.rocksdb.engine",
    # Which settings are read with, if there are any.
    "pydantic.type_adapter",
    "rich.table",
)
REQUEST_BYTES_MAX = 1 << 20
PR_SET_CHILD_SUBREAPER = 36


class ForkedProcess:
    """A process: what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        *arguments: str,
        module: str = PROGRAM,
        stdin: IO[Any] | None = None,
        stdout: IO[Any] | None = None,
        stderr: IO[Any] | None = None,
        environ: Mapping[str, str] | None = None,
        closed: Collection[int] = (),
    ) -> None:
        """Start `python -m module` with these arguments.

        Args:
            stdin: nothing comes from there by default.
            stdout: a pipe by default, whose other end is the attribute of this name.
            stderr: that of this process by default.
            environ: that of this process by default.
            closed: numbers of standard streams that are closed, as by `2>&-`.
        """
        self.returncode: int | None = None
        command = (module, *arguments)
        with ExitStack() as ours:
            readable, writable = os.pipe()
            self.stdout = os.fdopen(readable)
            into_pipe = ours.enter_context(os.fdopen(writable, "wb"))
            files = (
                stdin or ours.enter_context(Path(os.devnull).open("rb")),
                stdout or into_pipe,
                stderr or sys.__stderr__,
            )
            descriptors = [file.fileno() for file in files if file is not None]
            self.pid = _fork_server().fork(
                command, os.environ if environ is None else environ, descriptors, closed
            )
        if stdout:
            self.stdout.close()

    def poll(self) -> int | None:
        """Return the status if the process has ended; that of a signal is negative."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until it has ended.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if self.poll() is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                if not select.select([descriptor], [], [], timeout_s)[0]:
                    raise subprocess.TimeoutExpired(PROGRAM, timeout_s or 0)
            finally:
                os.close(descriptor)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        # After a wait for it, its number may belong to another process.
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    *arguments: str,
    module: str = PROGRAM,
    stdin: bytes = b"",
    environ: Mapping[str, str] | None = None,
    closed: Collection[int] = (),
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, however long it takes by default.

    Raises:
        subprocess.TimeoutExpired: it took longer, and was killed.
    """
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as error:
        given.write(stdin)
        given.seek(0)
        process = ForkedProcess(
            *arguments,
            module=module,
            stdin=given,
            stdout=out,
            stderr=error,
            environ=environ,
            closed=closed,
        )
        try:
            status = process.wait(timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read(), error.read())


class _ForkServer:
    """The process that forks, as its parent sees it. It ends when its parent does."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._one_at_a_time = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def fork(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        descriptors: Sequence[int],
        closed: Collection[int],
    ) -> int:
        """Return the number of a new process with these for its first three descriptors."""
        request = {
            "command": command,
            "environ": dict(environ),
            "directory": os.getcwd(),
            "closed": list(closed),
        }
        with self._one_at_a_time:
            _adopt_orphans(True)
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
                reply = self._socket.recv(64)
            finally:
                _adopt_orphans(False)
        assert reply, "the fork server has died"
        return int(reply)


_started: dict[int, _ForkServer] = {}


def _fork_server() -> _ForkServer:
    """Return the one of this process; a process that was forked starts its own."""
    pid = os.getpid()
    if pid not in _started:
        _started[pid] = _ForkServer()
    return _started[pid]


def _adopt_orphans(wanted: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _serve(requests: socket.socket) -> list[str]:
    """Fork for each request. Returns in each new process, with its command; and here, with an empty
    one, when the requests end.
    """
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 3)
        if not data:
            return []
        told, tells = os.pipe()
        between = os.fork()
        if not between:
            child = os.fork()
            if child:
                os.write(tells, str(child).encode())
                os._exit(0)
            for descriptor in (told, tells, requests.detach()):
                os.close(descriptor)
            return _become(json.loads(data), descriptors)
        for descriptor in (tells, *descriptors):
            os.close(descriptor)
        # Not before the one between has ended is the child an orphan, and adopted.
        os.waitpid(between, 0)
        requests.send(os.read(told, 64))
        os.close(told)


def _become(request: dict[str, Any], descriptors: Sequence[int]) -> list[str]:
    """Take over descriptors, environment and directory, as an executed process gets them."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for number, (name, mode, buffering) in enumerate(
        (("stdin", "r", -1), ("stdout", "w", -1), ("stderr", "w", 1))
    ):
        if number in request["closed"]:
            os.close(number)
            setattr(sys, name, None)
        else:
            setattr(sys, name, os.fdopen(number, mode, buffering, closefd=False))
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["directory"])
    command: list[str] = request["command"]
    return command


def _main() -> None:
    for name in IMPORTED_EARLY:
        importlib.import_module(name)
    # What is forked shares these objects until its end: were they looked at for cycles, as at every
    # end of an interpreter, they would all be copied. That is half of a command's time.
    gc.collect()
    gc.freeze()
    command = _serve(socket.socket(fileno=int(sys.argv[1])))
    if command:
        module, *sys.argv[1:] = command
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
