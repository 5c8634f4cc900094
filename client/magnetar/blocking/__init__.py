"""The same client without asyncio: for scripts, threads and Spark tasks.

One background thread runs the asyncio client; every call waits for it. Names, arguments and errors
are those of the asyncio classes, except that timeouts also end a call whose answer does not come.
Objects may be used from several threads.
"""

from magnetar.blocking.client import Client, connect
from magnetar.blocking.groups import GroupConsumer
from magnetar.blocking.messaging import Consumer, Producer
from magnetar.blocking.processing import process
from magnetar.blocking.transaction import Transaction
from magnetar.blocking.transactional_producer import TransactionalProducer

__all__ = [
    "Client",
    "Consumer",
    "GroupConsumer",
    "Producer",
    "Transaction",
    "TransactionalProducer",
    "connect",
    "process",
]
