"""Settings of the listener for Kafka's clients."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.config import InvalidConfig, check_numbers

# Below it the first requests of clients do not fit.
REQUEST_BYTES_MIN = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """Settings of the listener for Kafka's clients.

    Attributes:
        kafka_port: port where the broker answers Kafka's clients, on the same host. 0: the
            operating system chooses. Unset: there is none; `magnetar standalone` opens 9092 if it
            is free. Clients are not authenticated there, so the port needs a server without access
            file, tokens and certificates of clients.
        kafka_auto_create_topics: whether a client that asks about a topic which does not exist
            creates it, as some clients expect.
        kafka_topic_partitions: partitions of a topic whose client names no number. Higher: more
            consumers can share the work. Lower: less memory.
        kafka_connections_max: limit on the connections of Kafka's clients; the server closes
            further ones at once. Higher: more clients. Lower: less memory.
        kafka_request_bytes_max: largest request of a Kafka client; the connection of a larger one
            is closed. Higher: more partitions in a request. Lower: each client can use less of the
            server's memory.
        kafka_memory_bytes_max: memory of requests and answers of all Kafka clients that are under
            way. Beyond it, requests wait in the network. Higher: more clients are served at once.
            Lower: less memory.
        kafka_fetch_bytes_max: limit on the messages in an answer to a fetch, whatever its client
            asks for. Higher: fewer requests of a client that is behind. Lower: less memory for each
            client.
        kafka_request_timeout_ms: longest time for the bytes of a request to come, and for a client
            to take an answer. Then its connection is closed. Higher: slow networks work. Lower: a
            client that stops in the middle holds memory for less time.
        kafka_groups_bytes_max: memory, and disk, of the metadata and the assignments of all members
            of groups. Higher: more and larger groups. Lower: less memory.
        kafka_group_first_join_delay_ms: how long a group without members waits for others when the
            first one joins. Higher: members that start together share the partitions at once.
            Lower: the first one begins sooner.
        kafka_offset_metadata_bytes_max: largest text that a client keeps with a committed offset.
            Higher: more room for clients that keep their state there. Lower: less memory.
        kafka_offsets_retention_ms: how long committed offsets stay when a group has no members.
            Only time during which the broker runs counts. Higher: a group may rest for longer.
            Lower: groups that do not come back are forgotten sooner.
    """

    kafka_port: int | None = None
    kafka_auto_create_topics: bool = False
    kafka_topic_partitions: int = 1
    kafka_connections_max: int = 1_000
    kafka_request_bytes_max: int = 16 << 20
    kafka_memory_bytes_max: int = 128 << 20
    kafka_fetch_bytes_max: int = 8 << 20
    kafka_request_timeout_ms: int = 30_000
    kafka_groups_bytes_max: int = 64 << 20
    kafka_group_first_join_delay_ms: int = 500
    kafka_offset_metadata_bytes_max: int = 4_096
    kafka_offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000

    def __post_init__(self) -> None:
        if self.kafka_port is not None and not 0 <= self.kafka_port <= 0xFFFF:
            raise InvalidConfig(
                f"kafka_port is {self.kafka_port}; choose one from 1 to 65535, or 0 for any"
            )
        check_numbers(self, may_be_zero=("kafka_port", "kafka_group_first_join_delay_ms"))
        if self.kafka_request_bytes_max < REQUEST_BYTES_MIN:
            raise InvalidConfig(f"kafka_request_bytes_max must be at least {REQUEST_BYTES_MIN}")
        needed = 2 * max(self.kafka_request_bytes_max, self.kafka_fetch_bytes_max)
        if self.kafka_memory_bytes_max < needed:
            raise InvalidConfig(
                "kafka_memory_bytes_max must be at least twice the larger one of"
                f" kafka_request_bytes_max and kafka_fetch_bytes_max, {needed}"
            )
