"""Values that are text: one column."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from magnetar_spark.payloads.payload import ERROR, RECORD


class TextPayload:
    """The column `text`, which is the value in UTF-8."""

    schema = StructType([StructField("text", StringType())])

    def decoded(self, value: Column) -> Column:
        """Return the text, or the fault of a value that is not UTF-8."""
        text = value.cast("string")
        is_text = F.is_valid_utf8(text)
        return F.struct(
            F.when(is_text, F.struct(text.alias("text"))).alias(RECORD),
            F.when(~is_text, F.lit("not UTF-8")).alias(ERROR),
        )
