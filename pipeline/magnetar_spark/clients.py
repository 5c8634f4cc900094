"""A client for each process and cluster, which lives as long as the process.

Clients are never pickled: the objects that Spark pickles have the addresses of servers, and ask
    this
module for a client.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from pyspark import TaskContext

from magnetar import blocking
from magnetar.config import ClientConfig
from magnetar.errors import ClientClosed
from magnetar_core.errors import MagnetarError
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.security.link_security import LinkConfig
from magnetar_spark.options.given import Links

log = logging.getLogger("magnetar.spark")

_lock = threading.Lock()
# By the process, too: a forked child has its parent's variables, and not its threads.
_clients: dict[tuple[int, tuple[str, ...], Links | None], blocking.Client] = {}


def client_of(servers: tuple[str, ...], links: Links | None = None) -> blocking.Client:
    """Return this process's client of a cluster.

    Args:
        servers: the addresses of brokers, "host:port"; the first broker that answers names the
            others, and another one is asked when it is away.
        links: how they are reached; None: as variables MAGNETAR_... say.
    Raises:
        InvalidConfig: a file for TLS or a token cannot be read, in this process.
        LogUnavailable: no broker answers.
        MagnetarError: as blocking.connect.
    """
    key = (os.getpid(), servers, links)
    with _lock:
        found = _clients.get(key)
        if found is None:
            if not _clients:
                atexit.register(close_all)
            found = _clients[key] = _connect(servers, links)
            if TaskContext.get() is not None:
                _settle()
        return found


def _connect(servers: tuple[str, ...], links: Links | None) -> blocking.Client:
    if links is None:
        settings = LinkConfig.from_environment(os.environ)
    else:
        values: Any = dict(links)
        settings = LinkConfig(**values)
    security = settings.security()
    return blocking.connect(
        servers,
        transport=lambda: GrpcTransport(security),
        config=ClientConfig(client_name=f"magnetar-spark/{os.getpid()}"),
    )


def _settle() -> None:
    """Leave modules out of garbage collections.

    A worker of Spark's collects after every task. Without this, that is half of its processor time
    in small batches.
    """
    gc.collect()
    gc.freeze()


def close_all() -> None:
    """Close the clients of this process; the next client_of() connects again."""
    with _lock:
        clients = [client for (pid, _, _), client in _clients.items() if pid == os.getpid()]
        _clients.clear()
    for client in clients:
        try:
            client.close()
        except (MagnetarError, ClientClosed) as error:
            log.info("closing a client: %s", error)


def exit_on_sigterm() -> None:
    """Exit in order on SIGTERM, so that Spark's stop() is called.

    Spark ends the process of a stream reader by SIGTERM. The error of the query says so, in case
    another program sent the signal.
    """
    if threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(
        "the process of the query's source was told to end (SIGTERM), by Spark or by another "
        "program."
        " Nothing is lost: start the query again on its checkpoint"
    )
