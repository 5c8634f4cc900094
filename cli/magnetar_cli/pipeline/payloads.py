"""Options of jobs that decode values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from magnetar_cli.types import with_options

# Of a run in which no value could be decoded.
ALL_BAD_STATUS = 3

payload_options: Callable[[Callable[..., Any]], Callable[..., Any]] = with_options(
    click.option(
        "--format",
        "payload_format",
        type=click.Choice(["json", "avro", "protobuf", "text"]),
        required=True,
        help="The format of values.",
    ),
    click.option(
        "--schema",
        metavar="PATH",
        help="For JSON: columns in SQL, `id BIGINT NOT NULL, name STRING`. For Avro: a schema "
        "(.avsc). For Protobuf: descriptors, as protoc --descriptor_set_out writes them. Or a"
        " directory with such a file for each topic: TOPIC.ddl, TOPIC.avsc, TOPIC.desc.",
    ),
    click.option("--message", metavar="NAME", help="For Protobuf: the full name of the message."),
    click.option(
        "--framing",
        type=click.Choice(["none", "confluent"]),
        default="none",
        show_default=True,
        help="For Avro: values begin with the number of their writer's schema, which is then"
        " NUMBER.avsc beside the schema.",
    ),
)


def payload_of_request(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a job's request that these options give."""
    return {
        "payload_format": given["payload_format"],
        "schema_path": given["schema"],
        "message_name": given["message"],
        "framed": given["framing"] == "confluent",
    }
