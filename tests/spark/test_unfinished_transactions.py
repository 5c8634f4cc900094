"""A job that has to know of every commit that is under way does not go on with some of them."""

from __future__ import annotations

import pytest
from tests.freezing import freeze, thaw
from tests.system.processes import Servers

from magnetar import TransactionStatus, blocking
from magnetar_spark.jobs import unfinished_transactions as job
from magnetar_spark.jobs.failures import JobError

pytestmark = pytest.mark.chaos

COMMITTING = [TransactionStatus.COMMITTING]


def test_a_list_that_was_cut_is_refused(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is stopped carries nothing out: what is decided stays COMMITTING."""
    with blocking.connect(servers.address) as client:
        assert job.unfinished_transactions(client, COMMITTING) == []
        client.admin.topics.create("committed", partitions=1)
        with client.create_producer("committed") as producer:
            transactions = [client.begin_transaction() for _ in range(2)]
            for txn in transactions:
                producer.send(b"1", txn=txn)
            freeze(servers.pid("broker"))
            try:
                for txn in transactions:
                    txn.commit()
                monkeypatch.setattr(job, "ROWS_MAX", 2)
                found = job.unfinished_transactions(client, COMMITTING)
                assert [one.txn_id for one in found] == [
                    transaction.txn_id for transaction in transactions
                ]
                monkeypatch.setattr(job, "ROWS_MAX", 1)
                with pytest.raises(JobError, match="more than 1 transactions"):
                    job.unfinished_transactions(client, COMMITTING)
                told: list[int] = []
                listed = client.admin.transactions.list(
                    COMMITTING, limit=1, on_truncated=told.append
                )
                assert (len(listed), told) == (1, [0])
            finally:
                thaw(servers.pid("broker"))
