"""Settings of this broker under Kafka's names, with what is true of it. Pure.

What Kafka has and nothing here corresponds to is left out.
"""

from __future__ import annotations

from typing import Any, Protocol

from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.requests.topic_settings import BOOLEAN, INT, LIST, LONG, STRING

STATIC_BROKER_CONFIG = 4


class _Limits(Protocol):
    """The limits of a broker."""

    batch_bytes_max: int


def described_broker(broker: _Limits, config: KafkaConfig, number: int) -> list[dict[str, Any]]:
    """Return the settings of a broker as answers have them.

    Args:
        number: of the broker, for clients.
    """
    rows: list[tuple[str, object, int]] = [
        ("broker.id", number, INT),
        ("auto.create.topics.enable", config.kafka_auto_create_topics, BOOLEAN),
        ("num.partitions", config.kafka_topic_partitions, INT),
        ("default.replication.factor", 1, INT),
        ("min.insync.replicas", 1, INT),
        ("delete.topic.enable", True, BOOLEAN),
        ("message.max.bytes", broker.batch_bytes_max, INT),
        ("socket.request.max.bytes", config.kafka_request_bytes_max, INT),
        ("fetch.max.bytes", config.kafka_fetch_bytes_max, INT),
        ("max.connections", config.kafka_connections_max, INT),
        # A topic that is created without them has these.
        ("log.retention.ms", -1, LONG),
        ("log.retention.bytes", -1, LONG),
        ("log.cleanup.policy", "delete", LIST),
        ("compression.type", "producer", STRING),
        ("log.message.timestamp.type", "CreateTime", STRING),
        ("unclean.leader.election.enable", False, BOOLEAN),
    ]
    return [
        {
            "name": name,
            "value": str(value).lower() if isinstance(value, bool) else str(value),
            "read_only": True,
            "config_source": STATIC_BROKER_CONFIG,
            "is_sensitive": False,
            "synonyms": [],
            "config_type": kind,
        }
        for name, value, kind in rows
    ]
