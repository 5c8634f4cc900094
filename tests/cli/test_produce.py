"""`magnetar produce`: what it sends, what it says of bad lines, and how interrupts end it."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.running import MAGNETAR, Standalone, stop
from tests.cli.test_message_lines import MESSAGES, Content
from tests.virtual_time import run, time_passes
from tests.waiting import wait_until

from magnetar import blocking
from magnetar_cli.commands.produce import GIVE_UP_S, _PlainSends, _TransactionalSends
from magnetar_cli.message_lines import decode_json, decode_values
from magnetar_core.errors import LogUnavailable

INTERRUPTED, TERMINATED = 130, 143
# Takes standard input for its terminal, whose Ctrl-C it gets then.
AT_A_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
_numbers = itertools.count()


def new_topic() -> str:
    return f"produced-{next(_numbers)}"


def stored(standalone: Standalone, topic: str) -> list[Content]:
    with blocking.connect(standalone.environ["MAGNETAR_BROKER"]) as client:
        return [
            (one.value_or_none, one.key, dict(one.properties), one.event_time_ms)
            for one in client.read(topic, 0)
        ]


@settings(max_examples=10, deadline=None)
@given(messages=MESSAGES, transactional=st.booleans())
def test_what_consume_prints_as_json_can_be_sent_again(
    standalone: Standalone, messages: list[Content], transactional: bool
) -> None:
    source, copy = new_topic(), new_topic()
    with blocking.connect(standalone.environ["MAGNETAR_BROKER"]) as client:
        client.admin.topics.create(source)
        with client.create_producer(source) as producer:
            for value, key, properties, event_time_ms in messages:
                producer.send_nowait(value, key, properties=properties, event_time_ms=event_time_ms)
            producer.flush()
    printed = standalone.run("consume", source, "--until-end", "--json").stdout
    arguments = ("--transactional", "--messages-per-transaction", "3") if transactional else ()
    standalone.run("produce", copy, "--json", *arguments, stdin=printed)
    assert stored(standalone, copy) == stored(standalone, source) == messages


@pytest.mark.parametrize(
    ("arguments", "told", "values"),
    [
        ((), b"3 messages are sent", [b"1", b"2", b"3"]),
        (("--transactional",), b"0 messages are committed; the transaction after them, ", []),
        (
            ("--transactional", "--messages-per-transaction", "2"),
            b"2 messages are committed; the transaction after them, ",
            [b"1", b"2"],
        ),
    ],
)
@pytest.mark.parametrize(
    ("form", "lines"),
    [
        (("--key-separator", ":"), b"a:1\nb:2\nc:3\nno key\nd:4\n"),
        (("--json",), b'{"value": "1"}\n{"value": "2"}\n{"value": "3"}\n{"valu": "x"}\n'),
    ],
)
def test_a_bad_line_is_named_and_it_is_said_what_became_of_those_before_it(
    standalone: Standalone,
    form: tuple[str, ...],
    lines: bytes,
    arguments: tuple[str, ...],
    told: bytes,
    values: list[bytes],
) -> None:
    """All lines that were read together with it were not sent, and nothing said so."""
    topic = new_topic()
    done = standalone.run("produce", topic, *form, *arguments, stdin=lines, status=1)
    assert b"line 4 " in done.stderr
    assert told in done.stderr
    assert [value for value, *_ in stored(standalone, topic)] == values
    assert standalone.json("transactions", "list") == []


def test_a_tab_and_any_byte_part_key_and_value(standalone: Standalone) -> None:
    topic = new_topic()
    standalone.run("produce", topic, "--key-separator", r"\t", stdin=b"a\tb\\t:c\n")
    assert stored(standalone, topic) == [(b"b\\t:c", b"a", {}, None)]
    printed = standalone.run("consume", topic, "--until-end", "--key-separator", r"\x00").stdout
    assert printed == b"a\x00b\\t:c\n"


@contextmanager
def producing(standalone: Standalone, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose input goes on."""
    process = subprocess.Popen(
        [*MAGNETAR, "produce", *arguments],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=standalone.environ,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def is_stored(standalone: Standalone, topic: str, count: int) -> bool:
    found = standalone.json("topics", "list")
    return topic in {one["topic"] for one in found} and len(stored(standalone, topic)) == count


def open_transaction(standalone: Standalone) -> str:
    """Return the open transaction, once a message is in it."""
    listed: list[dict[str, Any]] = []
    while not (listed and listed[0]["partitions"]):
        listed = standalone.json("transactions", "list")
    return str(listed[0]["txn_id"])


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)]
)
def test_an_interrupt_sends_what_was_read_and_says_so(
    standalone: Standalone, number: int, status: int
) -> None:
    topic = new_topic()
    with producing(standalone, topic) as process:
        write(process, b"one\ntwo\nthree")
        wait_until(lambda: is_stored(standalone, topic, 2))
        process.send_signal(number)
        assert process.wait(30) == status
        assert process.stderr is not None
        assert process.stderr.read() == (
            b"interrupted: 2 messages are sent; 5 bytes without an end of line are not sent\n"
        )


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, TERMINATED), (signal.SIGHUP, 128 + signal.SIGHUP)]
)
def test_a_signal_aborts_the_transaction(standalone: Standalone, number: int, status: int) -> None:
    """It was open for the 15 minutes of its timeout."""
    topic = new_topic()
    arguments = ("--transactional", "--messages-per-transaction", "2")
    with producing(standalone, topic, *arguments) as process:
        write(process, b"one\ntwo\nthree\n")
        wait_until(lambda: is_stored(standalone, topic, 2))
        txn_id = open_transaction(standalone)
        process.send_signal(number)
        assert process.wait(30) == status
        assert process.stderr is not None
        assert process.stderr.read().decode() == (
            "interrupted: 2 messages are committed;"
            f" the transaction after them, {txn_id}, is aborted\n"
        )
    assert standalone.json("transactions", "describe", txn_id)["status"] == "ABORTED"


def test_the_second_interrupt_ends_it_although_no_server_answers(standalone: Standalone) -> None:
    topic = new_topic()
    servers = psutil.Process(standalone.process.pid).children()
    with producing(standalone, topic, "--transactional") as process:
        write(process, b"one\n")
        txn_id = open_transaction(standalone)
        stop(servers)

        def ended() -> bool:
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        try:
            wait_until(ended)
        finally:
            for server in servers:
                server.resume()
        assert process.returncode == INTERRUPTED
        assert process.stderr is not None
        assert process.stderr.read() == b"", "it had no time to say anything"
    standalone.run("transactions", "abort", txn_id, "--yes")


@pytest.mark.parametrize("arguments", [(), ("--transactional",)])
def test_ctrl_c_at_a_terminal_ends_it(standalone: Standalone, arguments: tuple[str, ...]) -> None:
    """It ended with the next line that somebody typed."""
    topic = new_topic()
    ours, theirs = os.openpty()
    program = [sys.executable, "-c", AT_A_TERMINAL, *MAGNETAR[1:], "produce", topic, *arguments]
    process = subprocess.Popen(
        program, stdin=theirs, stdout=theirs, stderr=theirs, env=standalone.environ
    )
    os.close(theirs)
    try:
        os.write(ours, b"typed\n")
        if arguments:
            open_transaction(standalone)
        else:
            wait_until(lambda: is_stored(standalone, topic, 1))
        os.write(ours, b"\x03")
        assert process.wait(30) == INTERRUPTED
        shown = os.read(ours, 10_000).decode()
        told = "0 messages are committed" if arguments else "1 message is sent"
        assert f"^C\r\ninterrupted: {told}" in shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert standalone.json("transactions", "list") == []


class Producer:
    """Takes messages, and flushes for so long, or not at all."""

    def __init__(self, flush_s: float = 0, error: Exception | None = None) -> None:
        self.flush_s = flush_s
        self.error = error

    async def enqueue(self, *_: object, **__: object) -> None:
        return

    async def send_many(self, *_: object, **__: object) -> None:
        return

    async def flush(self) -> None:
        await time_passes(self.flush_s)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    ("producer", "told"),
    [
        (Producer(GIVE_UP_S - 1), "2 messages are sent"),
        (Producer(GIVE_UP_S + 1), "of 2 messages, the last may not be stored"),
        (Producer(error=LogUnavailable("no disk")), "of 2 messages, not all are stored: no disk"),
    ],
)
def test_what_is_said_of_messages_that_were_under_way(producer: Producer, told: str) -> None:
    async def scenario() -> str:
        sends = _PlainSends(producer)  # type: ignore[arg-type]
        await sends.send(decode_values([b"one", b"two"], 1))
        return await sends.give_up()

    assert run(scenario()).startswith(told)


class Transaction:
    """A transaction whose end takes so long, or fails."""

    txn_id = "0:1:7"

    def __init__(self, end_s: float = 0, error: Exception | None = None) -> None:
        self.end_s = end_s
        self.error = error
        self.calls: list[str] = []

    async def commit(self, *, wait_finished: bool) -> None:
        assert wait_finished
        await self._end("commit")

    async def abort(self) -> None:
        await self._end("abort")

    async def _end(self, call: str) -> None:
        self.calls.append(call)
        await time_passes(self.end_s)
        if self.error is not None:
            raise self.error


class Client:
    def __init__(self, *transactions: Transaction) -> None:
        self._transactions = iter(transactions)

    async def begin_transaction(self, *, timeout_s: float) -> Transaction:
        return next(self._transactions)


@pytest.mark.parametrize(
    ("transaction", "told"),
    [
        (Transaction(1), "is aborted"),
        (Transaction(GIVE_UP_S + 1), "may be open until its time is up"),
        (Transaction(error=LogUnavailable("no disk")), "did not end in order: no disk"),
    ],
)
def test_what_is_said_of_a_transaction_that_was_open(transaction: Transaction, told: str) -> None:
    async def scenario() -> str:
        client = Client(Transaction(), transaction)
        sends = _TransactionalSends(Producer(), client, 2)  # type: ignore[arg-type]
        await sends.send(decode_json([b'{"value": "%d"}' % one for one in range(3)], 1))
        return await sends.give_up()

    text = run(scenario())
    assert text.startswith("2 messages are committed; the transaction after them, 0:1:7, ")
    assert told in text
    assert transaction.calls == ["abort"]


def test_a_commit_that_was_interrupted_is_asked_for_once_more() -> None:
    """To abort it would be refused, and what was committed would be told as lost."""

    async def scenario() -> tuple[str, int]:
        transaction = Transaction(1)
        sends = _TransactionalSends(Producer(), Client(transaction), None)  # type: ignore[arg-type]
        await sends.send(decode_values([b"one"], 1))
        ending = asyncio.ensure_future(sends.finish())
        await time_passes(0.5)
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        text = await sends.give_up()
        assert transaction.calls == ["commit", "commit"]
        return text, sends.count

    assert run(scenario()) == ("1 message is committed", 1)
