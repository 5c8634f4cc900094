"""The transactions that are decided and not carried out everywhere yet."""

from __future__ import annotations

from collections.abc import Collection

from magnetar import blocking
from magnetar.admin.transaction_descriptions import TransactionDescription
from magnetar.enums import TransactionStatus
from magnetar_core.list_limits import ROWS_MAX
from magnetar_spark.jobs.failures import JobError


def unfinished_transactions(
    client: blocking.Client, statuses: Collection[TransactionStatus]
) -> list[TransactionDescription]:
    """Return all transactions in these states, of every coordinator.

    Raises:
        JobError: there are so many that a coordinator left some out.
    """
    truncated: list[int] = []
    found = client.admin.transactions.list(statuses, limit=ROWS_MAX, on_truncated=truncated.append)
    if truncated:
        names = [one.name.lower() for one in statuses]
        chosen = " ".join(f"--status {name}" for name in names)
        raise JobError(
            f"more than {len(found)} transactions are {' or '.join(names)}, and coordinators do "
            "not list more at once: run this again when brokers have caught up (`magnetar "
            "transactions"
            f" list {chosen}`)"
        )
    return found
