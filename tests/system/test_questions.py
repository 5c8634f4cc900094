"""Commands that cannot be undone ask a person at a terminal, and are refused without one."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from tempfile import TemporaryFile

import pytest
from tests.fork_server import ForkedProcess
from tests.system.processes import CommandLine, Servers

from magnetar import PreparedTxnState, TransactionStatus, blocking

SETTINGS = {"MAGNETAR_TWO_PHASE_COMMIT_ENABLED": "1"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with Servers(tmp_path_factory.mktemp("servers"), SETTINGS).running() as running:
        yield running


@pytest.fixture(scope="module")
def client(servers: Servers) -> Iterator[blocking.Client]:
    with blocking.connect(servers.address) as connected:
        yield connected


def at_a_terminal(servers: Servers, *command: str, answer: str = "") -> tuple[int, str]:
    """Run a command whose standard input is a terminal; returns its status and its errors."""
    ours, theirs = pty.openpty()
    with (
        os.fdopen(ours, "wb", 0) as person,
        os.fdopen(theirs, "rb") as stdin,
        TemporaryFile() as stdout,
        TemporaryFile() as stderr,
    ):
        program = ForkedProcess(
            *("--broker", servers.address, *command), stdin=stdin, stdout=stdout, stderr=stderr
        )
        person.write(f"{answer}\n".encode())
        status = program.wait(30)
        stderr.seek(0)
        return status, stderr.read().decode()


def names(client: blocking.Client) -> set[str]:
    return {one.topic for one in client.admin.topics.list()}


def test_a_topic_is_deleted_when_the_answer_is_yes(
    servers: Servers, client: blocking.Client
) -> None:
    for topic in ("kept", "deleted", "silent", "script"):
        client.admin.topics.create(topic)
    status, text = at_a_terminal(servers, "topics", "delete", "kept", answer="n")
    assert (status, "Delete kept, its messages and its subscriptions?" in text) == (1, True)
    assert at_a_terminal(servers, "topics", "delete", "deleted", answer="y")[0] == 0
    assert at_a_terminal(servers, "topics", "delete", "silent", "--yes") == (0, "")
    refused = CommandLine(servers).run("topics", "delete", "script", status=2)
    assert "say --yes" in refused
    assert "script" in names(client)
    assert "PARTITION" in CommandLine(servers).run("topics", "delete", "script", "--dry-run")
    script = CommandLine(servers).run("topics", "delete", "script", "--yes")
    assert script == "deleted script\n"
    assert names(client) & {"kept", "deleted", "silent", "script"} == {"kept"}


@pytest.mark.parametrize(
    ("command", "question"),
    [
        (("subscriptions", "delete", "t", "nobody"), "Delete nobody of t"),
        (("groups", "delete", "nobody"), "Delete group nobody"),
        (("transactions", "remove-name", "nobody"), "Remove nobody?"),
    ],
)
def test_whatever_removes_something_asks(
    servers: Servers, command: tuple[str, ...], question: str
) -> None:
    status, text = at_a_terminal(servers, *command, answer="n")
    assert (status, question in text) == (1, True)
    assert "NotFound" not in text, "nothing was asked of the servers"


def prepared(client: blocking.Client, name: str) -> tuple[blocking.TransactionalProducer, str]:
    producer = client.transactional_producer(name, two_phase_commit=True)
    producer.init(keep_prepared=True)
    producer.complete(PreparedTxnState())
    producer.begin()
    return producer, str(producer.prepare())


def test_who_would_fence_a_program_is_asked(servers: Servers, client: blocking.Client) -> None:
    producer, state = prepared(client, "lives")
    complete = ("transactions", "complete", "lives", "--state", state)
    status, text = at_a_terminal(servers, *complete, answer="n")
    assert (status, "is fenced" in text) == (1, True)
    producer.commit()
    # It is committed: nobody is fenced, and nothing asked.
    assert at_a_terminal(servers, *complete) == (0, "")
    producer.begin()
    state = str(producer.prepare())
    complete = ("transactions", "complete", "lives", "--state", state)
    assert at_a_terminal(servers, *complete, answer="y")[0] == 0
    with pytest.raises(Exception, match="taken over"):
        producer.commit()


def test_who_would_abort_what_may_be_prepared_is_told_what_it_means(
    servers: Servers, client: blocking.Client
) -> None:
    _, state = prepared(client, "torn")
    terminate = ("transactions", "force-terminate", "torn")
    # Without the option it is refused, so there is nothing to ask.
    status, text = at_a_terminal(servers, *terminate)
    assert (status, "?" in text) == (12, False)
    status, text = at_a_terminal(servers, *terminate, "--abort-prepared", answer="n")
    assert (status, "keeps the rows, and the messages are lost" in text) == (1, True)
    txn_id = PreparedTxnState.parse(state).txn_id
    assert txn_id is not None
    assert client.admin.transactions.describe(txn_id).status is TransactionStatus.OPEN
    assert at_a_terminal(servers, *terminate, "--abort-prepared", "--yes") == (0, "")
    assert client.admin.transactions.describe(txn_id).status is TransactionStatus.ABORTED
