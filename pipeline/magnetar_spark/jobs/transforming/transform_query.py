"""The SQL query of a transform: what it may be, and the messages that its rows become.

It sees a batch at a time, as the view `input`: the columns of the records, and `_message` with all
of the message. So it may choose, change and explode rows, and nothing that looks at several.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructType, TimestampType

from magnetar_spark.errors import OptionError
from magnetar_spark.jobs.failures import one_line
from magnetar_spark.jobs.transforming.json_output import require_json, to_json
from magnetar_spark.schema import HEADERS_TYPE

VIEW = "input"
# All of the message that a row is from.
MESSAGE = "_message"
# Parts of the message that a row becomes.
KEY, VALUE, HEADERS, EVENT_TIME = "_key", "_value", "_headers", "_event_time"
RESERVED = (MESSAGE, KEY, VALUE, HEADERS, EVENT_TIME)
_TYPES: dict[str, tuple[Any, ...]] = {
    KEY: (BinaryType(), StringType()),
    VALUE: (BinaryType(), StringType()),
    HEADERS: (HEADERS_TYPE,),
    EVENT_TIME: (TimestampType(),),
}
# What looks at one row at a time, by the names that Spark's plans have for it.
_ROW_BY_ROW = {
    *("CTERelationDef", "CTERelationRef", "Filter", "Generate", "LocalRelation", "LogicalRDD"),
    *("OneRowRelation", "Project", "SubqueryAlias", "Union", "View", "WithCTE"),
}


class TransformQuery:
    """A query whose rows become messages.

    Args:
        sql: the query.
        topic: where the messages go.
    """

    def __init__(self, sql: str, topic: str) -> None:
        self._sql = sql
        self._topic = topic

    def check(self, spark: SparkSession, schema: StructType) -> None:
        """Check the query before there are rows.

        Args:
            schema: the columns of the view.
        Raises:
            OptionError: the query is not SQL, looks at several rows, gives other rows each time it
                runs, or its rows are not messages.
        """
        found = self._run(spark.createDataFrame([], schema))
        plan: Any = found._jdf.queryExecution().analyzed()
        for node in _nodes(plan):
            if node.nodeName() not in _ROW_BY_ROW or not node.subqueries().isEmpty():
                raise OptionError(
                    f"the query has {_told(node)}: it sees one batch at a time, and may only"
                    " choose, change and explode rows. Write a streaming query of your own for what"
                    " looks at several rows"
                )
            if not node.deterministic():
                raise OptionError(
                    "the query gives other rows whenever it runs, as with rand() or uuid(): a batch"
                    " that is repeated after a crash has to be the same"
                )
        self._messages(found)

    def messages(self, rows: DataFrame) -> DataFrame:
        """Return the messages of a batch: topic, key, value, headers and event_time."""
        return self._messages(self._run(rows))

    def _run(self, rows: DataFrame) -> DataFrame:
        rows.createOrReplaceTempView(VIEW)
        try:
            return rows.sparkSession.sql(self._sql)
        except PySparkException as error:
            raise OptionError(f"the query: {one_line(str(error))}") from None

    def _messages(self, found: DataFrame) -> DataFrame:
        self._require_messages(found)
        given = set(found.columns)
        fields = [name for name in found.columns if name not in RESERVED]
        value = to_json(found.schema, fields) if fields else F.col(VALUE)

        def part(name: str, of_message: str) -> Column:
            if name in given:
                return F.col(name)
            return F.col(f"{MESSAGE}.{of_message}") if MESSAGE in given else F.lit(None)

        return found.select(
            F.lit(self._topic).alias("topic"),
            part(KEY, "key").cast("binary").alias("key"),
            value.cast("binary").alias("value"),
            part(HEADERS, "headers").cast(HEADERS_TYPE).alias("headers"),
            part(EVENT_TIME, "event_time").cast("timestamp").alias("event_time"),
        )

    def _require_messages(self, found: DataFrame) -> None:
        names = found.columns
        lower = [name.lower() for name in names]
        for name in names:
            if lower.count(name.lower()) > 1:
                raise OptionError(f"the query gives {name} twice: name one of them otherwise")
            if name not in RESERVED:
                require_json(found.schema[name].dataType, name)
            elif name in _TYPES and found.schema[name].dataType not in _TYPES[name]:
                wanted = " or ".join(one.simpleString() for one in _TYPES[name])
                raise OptionError(
                    f"the query's {name} is {found.schema[name].dataType.simpleString()}: cast it"
                    f" to {wanted}"
                )
        fields = [name for name in names if name not in RESERVED]
        if VALUE in names and fields:
            raise OptionError(
                f"the query gives {VALUE}, which is the whole value, and fields beside it:"
                f" {', '.join(fields)}"
            )
        if VALUE not in names and not fields:
            raise OptionError(f"the query gives no field, and no {VALUE}: what is the value?")


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number))


def _told(node: Any) -> str:
    name = node.nodeName()
    return "a query within it" if name in _ROW_BY_ROW else name.upper()
