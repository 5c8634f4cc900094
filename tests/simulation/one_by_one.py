"""Receives message by message: most of that takes the short way in the SDK."""

from __future__ import annotations

from magnetar import Consumer, GroupConsumer, MagnetarError, Message

# Who asks for so many messages at once takes them one by one; the others take batches.
COUNT = 4


async def receive_some(
    consumer: Consumer | GroupConsumer, count: int, *, timeout_s: float
) -> list[Message]:
    """Do the same as receive_batch, and for some counts with a call for each message."""
    if count != COUNT:
        return await consumer.receive_batch(count, timeout_s=timeout_s)
    messages: list[Message] = []
    while len(messages) < count:
        try:
            messages.append(await consumer.receive(0 if messages else timeout_s))
        except TimeoutError:
            break
        except MagnetarError:
            if not messages:
                raise
            break  # As receive_batch: the next one raises it.
    return messages
