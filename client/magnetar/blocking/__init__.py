"""The same client without asyncio: for scripts, threads and Spark tasks.

One background thread runs the asyncio client; every call waits for it. Classes, names, arguments,
defaults and errors are those of the asyncio client, and so is what they do: these classes are
written from those. Where that has `async with`, `async for` and `await`, this has `with`, `for` and
nothing. Callbacks run on other threads than the client's, so that they may use the client. Objects
may be used from several threads.
"""

from magnetar.blocking.admin import AdminClient
from magnetar.blocking.client import Client
from magnetar.blocking.connecting import connect
from magnetar.blocking.consumer import Consumer
from magnetar.blocking.group_consumer import GroupConsumer
from magnetar.blocking.processing import process
from magnetar.blocking.producer import Producer
from magnetar.blocking.transaction import Transaction
from magnetar.blocking.transactional_producer import TransactionalProducer
from magnetar.groups.offsets import offsets

__all__ = [
    "AdminClient",
    "Client",
    "Consumer",
    "GroupConsumer",
    "Producer",
    "Transaction",
    "TransactionalProducer",
    "connect",
    "offsets",
    "process",
]
