"""Settings of topics, as Kafka names them. Pure.

A setting that is accepted has an effect; one that would have none is refused, unless it asks for
what is true anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from magnetar_core.wire import topic_pb2
from magnetar_kafka.error_codes import ErrorCode, Refused

UNLIMITED = -1
# Whether retention leaves messages that a subscription needs. Kafka has no such setting.
RETAIN_UNCONSUMED = "magnetar.retain.unconsumed"
CHANGEABLE = ("retention.ms", "retention.bytes", RETAIN_UNCONSUMED)
# What is true of every topic. Keys are Kafka's names.
FIXED: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
}
BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7
_TYPES = {
    "cleanup.policy": LIST,
    "min.insync.replicas": INT,
    "max.message.bytes": INT,
    "retention.ms": LONG,
    "retention.bytes": LONG,
    "unclean.leader.election.enable": BOOLEAN,
    RETAIN_UNCONSUMED: BOOLEAN,
}
DYNAMIC_TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5


class Setting(NamedTuple):
    """A setting of a topic.

    Attributes:
        is_given: whether the topic has another value than others would.
    """

    name: str
    value: str
    is_given: bool


def command_of(
    topic: str,
    partitions: int,
    configs: Iterable[Mapping[str, Any]],
    *,
    batch_bytes_max: int,
    call_token: int,
) -> topic_pb2.CommandCreateTopic:
    """Return the command that creates a topic as a Kafka client asks for it.

    Raises:
        Refused: a setting is not known, cannot be had, or has an impossible value.
    """
    command = topic_pb2.CommandCreateTopic(
        topic=topic,
        partitions=partitions,
        retain_unconsumed=topic_pb2.NO,
        call_token=call_token,
    )
    for config in configs:
        _set(command, config["name"], config["value"] or "", batch_bytes_max)
    return command


# Operations of IncrementalAlterConfigs.
SET, DELETE = 0, 1


def alter_some(
    command: topic_pb2.CommandAlterTopic, resource: Mapping[str, Any], batch_bytes_max: int
) -> None:
    """Let a command change the settings that IncrementalAlterConfigs names; others stay.

    Raises:
        Refused: a setting is not known, named twice, cannot be had, or has an impossible value.
    """
    _check_once(resource["configs"])
    for config in resource["configs"]:
        name, operation = config["name"], config["config_operation"]
        if operation == SET:
            _set(command, name, config["value"] or "", batch_bytes_max)
        elif operation == DELETE:
            _set_default(command, name)
        else:
            raise Refused(
                ErrorCode.INVALID_CONFIG, f"{name} is not a list to which values could be added"
            )


def alter_all(
    command: topic_pb2.CommandAlterTopic, resource: Mapping[str, Any], batch_bytes_max: int
) -> None:
    """Let a command set what AlterConfigs names, and everything else to its default.

    Raises:
        Refused: as alter_some.
    """
    _check_once(resource["configs"])
    for name in CHANGEABLE:
        _set_default(command, name)
    for config in resource["configs"]:
        _set(command, config["name"], config["value"] or "", batch_bytes_max)


def _check_once(configs: Iterable[Mapping[str, Any]]) -> None:
    names = [config["name"] for config in configs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{twice} is named twice")


def _set_default(command: topic_pb2.CommandAlterTopic, name: str) -> None:
    """Set a setting of a topic to its default, as of a topic that was created without it."""
    if name == "retention.ms":
        command.retention_ms = 0
    elif name == "retention.bytes":
        command.retention_bytes = 0
    elif name == RETAIN_UNCONSUMED:
        command.retain_unconsumed = topic_pb2.NO
    elif name not in FIXED and name != "max.message.bytes":
        raise _unknown(name)


def _set(
    command: topic_pb2.CommandAlterTopic | topic_pb2.CommandCreateTopic,
    name: str,
    value: str,
    batch_bytes_max: int,
) -> None:
    if name == "retention.ms":
        command.retention_ms = _limit(name, value)
    elif name == "retention.bytes":
        command.retention_bytes = _limit(name, value)
    elif name == RETAIN_UNCONSUMED and value in ("true", "false"):
        command.retain_unconsumed = topic_pb2.YES if value == "true" else topic_pb2.NO
    else:
        _check_fixed(name, value, batch_bytes_max)


def _unknown(name: str) -> Refused:
    return Refused(ErrorCode.INVALID_CONFIG, f"topics do not have the setting {name[:100]}")


def _limit(name: str, value: str) -> int:
    """Return a limit, 0 for none."""
    number = _number(name, value)
    if number == UNLIMITED:
        return 0
    if number < 1:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is {value}, but must be -1 or above 0")
    return number


def _number(name: str, value: str) -> int:
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is {value!r}, and not a number")
    return int(value)


def _check_fixed(name: str, value: str, batch_bytes_max: int) -> None:
    if name == "max.message.bytes":
        if _number(name, value) > batch_bytes_max:
            raise Refused(
                ErrorCode.INVALID_CONFIG,
                f"max.message.bytes is {value}, above batch_bytes_max of this server,"
                f" {batch_bytes_max}",
            )
        if _number(name, value) < batch_bytes_max:
            raise Refused(
                ErrorCode.INVALID_CONFIG,
                f"max.message.bytes cannot be lower than batch_bytes_max, {batch_bytes_max}: it is"
                " the same for all topics",
            )
        return
    if name not in FIXED:
        raise _unknown(name)
    if value != FIXED[name]:
        text = f"{name} is {FIXED[name]} for all topics, and cannot be {value}"
        if name == "cleanup.policy":
            text += ": there are no compacted topics"
        raise Refused(ErrorCode.INVALID_CONFIG, text)


def settings_of(record: topic_pb2.TopicRecord, batch_bytes_max: int) -> list[Setting]:
    """Return the settings of a topic, with what is true of it."""

    def limit(value: int) -> str:
        return str(value or UNLIMITED)

    retains = record.retain_unconsumed != topic_pb2.NO
    return [
        *(Setting(name, value, False) for name, value in FIXED.items()),
        Setting("max.message.bytes", str(batch_bytes_max), False),
        Setting("retention.ms", limit(record.retention_ms), bool(record.retention_ms)),
        Setting("retention.bytes", limit(record.retention_bytes), bool(record.retention_bytes)),
        Setting(RETAIN_UNCONSUMED, "true" if retains else "false", retains),
    ]


def described(setting: Setting) -> dict[str, Any]:
    """Return a setting as answers have it."""
    return {
        "name": setting.name,
        "value": setting.value,
        "read_only": setting.name not in CHANGEABLE,
        "config_source": DYNAMIC_TOPIC_CONFIG if setting.is_given else DEFAULT_CONFIG,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": _TYPES.get(setting.name, STRING),
    }
