"""The transactions that are committed and not carried out everywhere yet."""

from __future__ import annotations

from magnetar import blocking
from magnetar.admin.transaction_descriptions import TransactionDescription
from magnetar.enums import TransactionStatus
from magnetar_core.list_limits import ROWS_MAX
from magnetar_spark.jobs.failures import JobError


def being_committed(client: blocking.Client) -> list[TransactionDescription]:
    """Return all of them, of every coordinator.

    Raises:
        JobError: there are so many that a coordinator left some out.
    """
    truncated: list[int] = []
    found = client.admin.transactions.list(
        (TransactionStatus.COMMITTING,), limit=ROWS_MAX, on_truncated=truncated.append
    )
    if truncated:
        raise JobError(
            f"more than {len(found)} transactions are being committed, and coordinators tell no"
            " more at once:"
            " run this again when brokers have caught up (`magnetar transactions list --status"
            " committing`)"
        )
    return found
