"""docs/kafka_requests.md: the requests of Kafka's clients that a broker answers."""

from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.requests.topic_settings import FIXED, RETAIN_UNCONSUMED
from magnetar_kafka.wire.apis import APIS

HEAD = """\
# Requests of Kafka's clients

What a broker answers on its [port for Kafka's clients](kafka.md). A request that is not here, or has another version, ends the
connection, but for ApiVersions: an unknown version gets code 35 and the oldest answer, as clients expect. This page is
generated: `make docs`.

| request | number | versions | what is done |
|---|---:|---|---|
"""

SETTINGS = f"""
## Settings of topics

CreateTopics, AlterConfigs and IncrementalAlterConfigs accept `retention.ms` and `retention.bytes` (-1: no limit), and `{RETAIN_UNCONSUMED}`: whether retention leaves the messages that
a subscription still needs, `false` unless asked for. These have one value, and asking for another one gets INVALID_CONFIG, as do all other
names; `max.message.bytes` is `batch_bytes_max` of the broker.

| setting | value |
|---|---|
"""

CODES = """
## Codes of errors

| code | name |
|---:|---|
"""


def page() -> str:
    parts = [HEAD]
    parts += [
        f"| {api.name} | {api.key} | {api.first} to {api.last} | {api.text} |\n"
        for api in sorted(APIS)
    ]
    parts.append(SETTINGS)
    parts += [f"| `{name}` | {value} |\n" for name, value in FIXED.items()]
    parts.append(CODES)
    parts += [f"| {code.value} | {code.name} |\n" for code in ErrorCode]
    return "".join(parts)
