"""Counts words exactly once, in as many processes as you like: the loop of KIP-447.

    magnetar standalone
    magnetar topics create lines --partitions 4
    magnetar topics create words
    python examples/word_count.py
    echo "to be or not to be" | magnetar produce lines

Start it several times, and kill any of them wherever you like: the group gives its partitions to
the others, and every line is counted once. The topic `words` gets each word as a key, with how
often it came in a batch of lines: their sum is the count.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter

import magnetar
from magnetar import CommitRefused, MagnetarError, Message, offsets

# The batch does not count, and comes again, here or elsewhere.
BATCH_IS_VOID = (
    CommitRefused,
    magnetar.IllegalGeneration,
    magnetar.InvalidTxnState,
    magnetar.ProducerFenced,
    magnetar.TransactionConflict,
    magnetar.UnknownMember,
)


def count_words(lines: list[Message]) -> Counter[str]:
    return Counter(word for line in lines for word in line.value.decode().split())


async def run(arguments: argparse.Namespace) -> None:
    async with await magnetar.connect(arguments.broker) as client:
        consumer = await client.consumer_group(
            arguments.group,
            arguments.source,
            initial_position="earliest",
            session_timeout_s=arguments.session_timeout_s,
        )
        producer = client.transactional_producer()
        # Waits until the consumer is a member of the group.
        await producer.init_transactions(consumer)
        print("counting", flush=True)
        while True:
            lines = await consumer.poll(timeout_s=5)
            if not lines:
                continue
            try:
                await producer.begin()
                for word, count in count_words(lines).items():
                    await producer.enqueue(arguments.target, str(count).encode(), word.encode())
                # Refused when the group has given a partition away: then nothing counts.
                await producer.send_offsets_to_transaction(offsets(lines))
                await producer.commit()
            except BATCH_IS_VOID as error:
                print(f"comes again: {error}", file=sys.stderr)
                await producer.init_transactions(consumer)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--broker", default="127.0.0.1:6650")
    parser.add_argument("--group", default="word-count")
    parser.add_argument("--source", default="lines")
    parser.add_argument("--target", default="words")
    parser.add_argument("--session-timeout-s", type=float, default=None, metavar="SECONDS")
    try:
        asyncio.run(run(parser.parse_args()))
    except MagnetarError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
