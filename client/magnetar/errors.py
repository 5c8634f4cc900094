"""Errors that only the SDK raises; all others are in magnetar_core.errors."""

from __future__ import annotations

from magnetar_core.errors import MagnetarError, TxnError


class CommitRefused(TxnError):
    """A send or an ack of the transaction failed, so the SDK aborted it instead of committing.

    Nothing of the transaction counts. `__cause__` is the first failure; begin another transaction.
    """

    grpc_status = "ABORTED"


class ClientClosed(MagnetarError):
    """The client, producer or consumer is closed. No effect."""

    grpc_status = "FAILED_PRECONDITION"


class UsedAfterFork(MagnetarError, RuntimeError):
    """A blocking client does not survive a fork. No effect; connect again in the child process."""

    grpc_status = "FAILED_PRECONDITION"
