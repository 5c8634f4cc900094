"""A job that has to know of every commit that is under way does not go on with some of them."""

from __future__ import annotations

import os
import signal

import pytest
from tests.system.processes import Servers

from magnetar import TransactionStatus, blocking
from magnetar_spark.jobs import being_committed
from magnetar_spark.jobs.failures import JobError

pytestmark = pytest.mark.chaos


def test_a_list_that_was_cut_is_refused(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is stopped carries nothing out: what is decided stays COMMITTING."""
    with blocking.connect(servers.address) as client:
        assert being_committed.being_committed(client) == []
        client.admin.topics.create("committed", partitions=1)
        with client.create_producer("committed") as producer:
            transactions = [client.begin_transaction() for _ in range(2)]
            for txn in transactions:
                producer.send(b"1", txn=txn)
            os.kill(servers.pid("broker"), signal.SIGSTOP)
            try:
                for txn in transactions:
                    txn.commit()
                monkeypatch.setattr(being_committed, "ROWS_MAX", 2)
                found = being_committed.being_committed(client)
                assert [one.txn_id for one in found] == [one.txn_id for one in transactions]
                monkeypatch.setattr(being_committed, "ROWS_MAX", 1)
                with pytest.raises(JobError, match="more than 1 transactions"):
                    being_committed.being_committed(client)
                told: list[int] = []
                listed = client.admin.transactions.list(
                    [TransactionStatus.COMMITTING], limit=1, on_truncated=told.append
                )
                assert (len(listed), told) == (1, [0])
            finally:
                os.kill(servers.pid("broker"), signal.SIGCONT)
