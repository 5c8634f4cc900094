"""The formats of payloads by name."""

from __future__ import annotations

from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.json_payload import json_payload
from magnetar_spark.payloads.payload import Payload, require_distinct
from magnetar_spark.payloads.schema_files import schema_file
from magnetar_spark.payloads.text_payload import TextPayload

FORMATS = ("json", "avro", "protobuf", "text")


def payload_of(
    payload_format: str,
    *,
    topic: str,
    schema_path: str | None,
    message_name: str | None = None,
    framed: bool = False,
    reserved: tuple[str, ...] = (),
) -> Payload:
    """Return the payload of a topic.

    Args:
        payload_format: one of FORMATS.
        schema_path: the schema's file, or a directory of them; `text` has none.
        message_name: of Protobuf, the message's full name.
        framed: of Avro, whether values have Confluent's header.
        reserved: names that no column may have.
    Raises:
        OptionError: the schema is missing, or cannot be used.
    """
    if framed and payload_format != "avro":
        raise OptionError("framed values are understood in Avro only")
    if message_name is not None and payload_format != "protobuf":
        raise OptionError("a message is named for Protobuf only")
    if payload_format == "text":
        if schema_path is not None:
            raise OptionError("text has no schema: it is the column `text`")
        return TextPayload()
    if schema_path is None:
        raise OptionError(f"values in {payload_format} need a schema: name its file or directory")
    path = schema_file(schema_path, payload_format, topic)
    payload: Payload
    if payload_format == "json":
        payload = json_payload(path)
    elif payload_format == "avro":
        from magnetar_spark.payloads.avro_payload import avro_payload

        payload = avro_payload(path, framed=framed)
    else:
        from magnetar_spark.payloads.protobuf_payload import protobuf_payload

        payload = protobuf_payload(path, message_name)
    if not payload.schema.fields:
        raise OptionError(f"{path} names no column")
    require_distinct([one.name for one in payload.schema], reserved, str(path))
    return payload
