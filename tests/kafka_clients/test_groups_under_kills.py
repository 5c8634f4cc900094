"""Groups of client libraries over several real brokers, which are killed, and shards that move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kafka_clients.test_clients import needs_confluent, needs_kafka_python
from tests.kafka_clients.test_clusters import (
    PARTITIONS,
    MovingBrokers,
    ThreeBrokers,
    create_topic,
)
from tests.kafka_clients.test_group_clients import (
    Workers,
    check,
    needs_aiokafka,
    workers_of,
    write,
)
from tests.waiting import wait_until

SECONDS_MAX = 120
MEMBERS = ("confluent", "kafka-python", "aiokafka")


class Rounds:
    """Messages that are written in rounds, and read by a group."""

    def __init__(self, servers: ThreeBrokers | MovingBrokers, workers: Workers) -> None:
        self._servers = servers
        self._workers = workers
        self.count = 0

    def write(self, more: int) -> None:
        """Write messages."""
        write(self._servers, "t", range(self.count, self.count + more))
        self.count += more

    def wait(self, what: str) -> None:
        """Wait until the group has told all of them."""
        workers = self._workers
        workers.until(lambda: len({one.value for one in workers.told}) == self.count, what)

    def around(self, what: str, event: Callable[[], object]) -> None:
        """Let something happen while the group has messages to read."""
        self.write(120)
        event()
        self.write(60)
        self.wait(what)


@needs_confluent
@needs_kafka_python
@needs_aiokafka
def test_a_group_over_three_brokers_of_which_each_is_killed(tmp_path: Path) -> None:
    servers = ThreeBrokers(tmp_path)
    with servers.running():
        create_topic(servers, "t")
        with workers_of(",".join(servers.kafka), "over three", "t") as workers:
            for library in MEMBERS:
                workers.start(library)
            rounds = Rounds(servers, workers)
            rounds.around("the members start", lambda: None)
            for number in (1, 2, 0):
                rounds.around(
                    f"broker {number} was killed",
                    lambda number=number: servers.kill_and_start(number),  # type: ignore[misc]
                )
            workers.kill("confluent")
            rounds.around("a member was killed", lambda: None)
            check(workers, rounds.count)
            assert len({one.partition for one in workers.told}) == PARTITIONS
        servers.stop()


@needs_confluent
@needs_kafka_python
@needs_aiokafka
@pytest.mark.chaos
def test_a_group_whose_coordinator_moves_and_is_killed(tmp_path: Path) -> None:
    servers = MovingBrokers(tmp_path)
    with servers.running():
        create_topic(servers, "t")
        with workers_of(",".join(servers.kafka), "on the move", "t") as workers:
            for library in MEMBERS:
                workers.start(library)
            rounds = Rounds(servers, workers)

            def moved(times: int) -> Callable[[], None]:
                def wait() -> None:
                    assert servers._mover is not None
                    mover = servers._mover
                    wait_until(lambda: mover.move_count >= times, SECONDS_MAX)

                return wait

            rounds.around("the members start", lambda: None)
            rounds.around("shards moved", moved(4))
            rounds.around("a broker was killed", lambda: servers.kill_and_start(1))
            rounds.around("shards moved again", moved(8))
            check(workers, rounds.count)
        servers.stop()
