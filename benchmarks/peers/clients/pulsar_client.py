"""The rows of the comparison for Pulsar, with its Python client, which has no transactions."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from http import HTTPStatus

import pulsar

from benchmarks.peers.clients.measuring import CHUNK_MESSAGES, Round, Task, awaited

BATCH_MESSAGES_MAX = 10_000
BATCH_TIMEOUT_MS = 10
RECEIVE_WITHIN_MS = 60_000


class Rows:
    """The work of one task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._failed: list[object] = []
        self._create()
        self._client = pulsar.Client(
            task.text("address"), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )

    def produce(self) -> None:
        producer = self._client.create_producer(
            self._task.topic,
            batching_enabled=True,
            batching_max_messages=BATCH_MESSAGES_MAX,
            batching_max_allowed_size_in_bytes=262_144,
            batching_max_publish_delay_ms=1,
            max_pending_messages=100_000,
            max_pending_messages_across_partitions=1_000_000,
            block_if_queue_full=True,
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        )
        value = self._task.value
        for measured, seconds in self._task.rounds():
            before = self._stored()
            one_round = Round(measured=measured)
            deadline_s = time.perf_counter() + seconds
            sent = 0
            while time.perf_counter() < deadline_s:
                for _ in range(CHUNK_MESSAGES):
                    producer.send_async(value, self._delivered)
                sent += CHUNK_MESSAGES
            producer.flush()
            one_round.end()
            if self._failed:
                raise RuntimeError(f"not all messages were delivered: {self._failed[0]}")
            one_round.result(sent, sent, awaited(before + sent, self._stored) - before)

    def consume(self) -> None:
        """A subscription of its own in each round."""
        expected = self._task.number("count")
        for number, measured in enumerate(self._task.readings()):
            consumer = self._client.subscribe(
                self._task.topic,
                f"python-{self._task.call}-{number}",
                initial_position=pulsar.InitialPosition.Earliest,
                receiver_queue_size=20_000,
                max_total_receiver_queue_size_across_partitions=160_000,
                batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(
                    BATCH_MESSAGES_MAX, 10 << 20, BATCH_TIMEOUT_MS
                ),
            )
            one_round = Round(measured=measured)
            seen = 0
            while seen < expected:
                if self._task.call == "batch call":
                    messages = consumer.batch_receive()
                else:
                    messages = [consumer.receive(RECEIVE_WITHIN_MS)]
                for message in messages:
                    seen += 1 if message.data() else 0
                    consumer.acknowledge(message)
            # Acks that are still grouped are sent.
            consumer.close()
            one_round.end()
            one_round.result(seen, self._stored(), seen)

    def close(self) -> None:
        self._client.close()

    def _delivered(self, result: pulsar.Result, _: object) -> None:
        if result != pulsar.Result.Ok:
            self._failed.append(result)

    def _stored(self) -> int:
        """Return the number of messages that the partitions took since the server's start."""
        with urllib.request.urlopen(f"{self._page()}/partitioned-stats?perPartition=false") as page:
            return int(json.load(page)["msgInCounter"])

    def _create(self) -> None:
        asked = urllib.request.Request(
            f"{self._page()}/partitions",
            data=str(self._task.partitions).encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        try:
            urllib.request.urlopen(asked).close()
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise

    def _page(self) -> str:
        return f"{self._task.text('admin')}/admin/v2/persistent/public/default/{self._task.topic}"


def main(arguments: list[str]) -> None:
    task = Task(arguments)
    rows = Rows(task)
    getattr(rows, task.text("work"))()
    rows.close()


if __name__ == "__main__":
    main(sys.argv[1:])
