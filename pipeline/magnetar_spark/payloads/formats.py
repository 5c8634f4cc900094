"""The formats of payloads by name."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.json_payload import json_payload
from magnetar_spark.payloads.payload import ERROR, NO_VALUE, RECORD, Payload, require_distinct
from magnetar_spark.payloads.schema_files import schema_file

FORMATS = ("json", "avro", "protobuf", "text")


class TextPayload:
    """The column `text`, which is the value in UTF-8."""

    schema = StructType([StructField("text", StringType())])

    def decoded(self, value: Column) -> Column:
        """Return the text, or the fault of a value that is absent or not UTF-8."""
        text = value.cast("string")
        is_text = F.is_valid_utf8(text)
        return F.struct(
            F.when(is_text, F.struct(text.alias("text"))).alias(RECORD),
            F.when(value.isNull(), F.lit(NO_VALUE)).when(~is_text, F.lit("not UTF-8")).alias(ERROR),
        )


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
