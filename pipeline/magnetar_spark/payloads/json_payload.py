"""Values in JSON, which Spark decodes.

The schema is a file of columns in SQL, as `id BIGINT NOT NULL, name STRING`, or a schema as Spark
writes it, `DataFrame.schema.json()`.
Source: Spark SQL, JSON functions: from_json; PERMISSIVE mode keeps what it cannot read in a column.
"""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.payload import ERROR, RECORD
from magnetar_spark.payloads.schema_files import schema_text

# Where Spark puts what it cannot read: no field has such a name.
_CORRUPT = "@corrupt"


class JsonPayload:
    """JSON objects.

    Args:
        schema: the fields. One that is not nullable has to be there.
    """

    def __init__(self, schema: StructType) -> None:
        self.schema = schema

    def decoded(self, value: Column) -> Column:
        """Return the record; Spark does not say what is wrong with a value, only that it is."""
        text = value.cast("string")
        fields = [StructField(one.name, one.dataType) for one in self.schema]
        kind = StructType([*fields, StructField(_CORRUPT, StringType())])
        parsed = F.from_json(
            text,
            kind,
            {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
        )
        # By a lambda, so that Spark parses once: an expression that is named twice runs twice.
        both = F.struct(parsed.alias("parsed"), _is_single(text).alias("is_single"))
        return F.transform(F.array(both), self._judged)[0]

    def _judged(self, both: Column) -> Column:
        parsed = both["parsed"]
        is_object = parsed.isNotNull() & parsed[_CORRUPT].isNull() & both["is_single"]
        error = F.when(~is_object, F.lit("not a JSON object of the schema"))
        for field in self.schema:
            if not field.nullable:
                error = error.when(parsed[field.name].isNull(), F.lit(f"no {field.name}"))
        record = F.struct(*(parsed[field.name].alias(field.name) for field in self.schema))
        return F.struct(F.when(error.isNull(), record).alias(RECORD), error.alias(ERROR))


def _is_single(text: Column) -> Column:
    """Whether nothing follows the first value: Spark would not look at it.

    What follows in an array begins with a comma or a bracket, in an object with a comma or a brace.
    """
    in_array = F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1
    in_object = F.size(F.json_object_keys(F.concat(F.lit('{"":'), text, F.lit("}")))) == 1
    return F.coalesce(in_array & in_object, F.lit(False))


def json_payload(path: Path) -> JsonPayload:
    """Return the payload whose schema is in a file. Needs a Spark session.

    Raises:
        OptionError: the file has no schema.
    """
    text = schema_text(path).strip()
    return JsonPayload(
        _from_json(path, text) if text.startswith("{") else _from_columns(path, text)
    )


def _from_columns(path: Path, text: str) -> StructType:
    try:
        found = DataType.fromDDL(text)
    except PySparkException as error:
        why = str(error).strip().splitlines()[0]
        raise OptionError(f"{path} has no columns as SQL has them: {why}") from None
    if not isinstance(found, StructType):
        raise OptionError(f"{path} has one type, and no columns: write id BIGINT, name STRING")
    return found


def _from_json(path: Path, text: str) -> StructType:
    try:
        parsed = json.loads(text)
        if "fields" not in parsed:
            raise OptionError(
                f"{path} is no schema of Spark's (JSON Schema is not understood): write columns as"
                " in SQL, id BIGINT NOT NULL, name STRING"
            )
        return StructType.fromJson(parsed)
    except (ValueError, KeyError, TypeError, PySparkException) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"{path} is no schema of Spark's: {error}") from None
