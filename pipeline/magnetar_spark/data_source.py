"""The class that Spark makes for every query with `format("magnetar")`.

Spark starts a Python process for each question: which formats exist, what schema a format has, how
to plan a query, how to commit a batch. Therefore the module imports source and sink, and with them
the client, only where they are needed: most of these processes need neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from magnetar_spark.errors import OptionError, said_first
from magnetar_spark.options.sink import sink_options
from magnetar_spark.options.source import schema_options, source_options
from magnetar_spark.schema import check_sink_schema, check_source_schema, source_schema

if TYPE_CHECKING:
    from magnetar_spark.sink import BatchWriter, StreamWriter
    from magnetar_spark.source import BatchReader, RefusedStreamReader, StreamReader


class MagnetarDataSource(DataSource):
    """Makes the source and the sink, for streaming queries and batches."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "magnetar"

    @said_first()
    def schema(self) -> StructType:
        """Return the columns of the source."""
        include_headers, columns = schema_options(self.options)
        return source_schema(include_headers=include_headers, columns=columns)

    @said_first()
    def reader(self, schema: StructType) -> BatchReader:
        """Return the source of a batch."""
        from magnetar_spark.source import BatchReader

        options = source_options(self.options, streaming=False)
        check_source_schema(
            schema, include_headers=options.include_headers, columns=options.columns
        )
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStreamReader:
        """Return the source of a streaming query."""
        from magnetar_spark.source import RefusedStreamReader, StreamReader

        try:
            options = source_options(self.options, streaming=True)
            check_source_schema(
                schema, include_headers=options.include_headers, columns=options.columns
            )
        except OptionError as error:
            return RefusedStreamReader(error)
        return StreamReader(options)

    @said_first()
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the sink of a batch."""
        from magnetar_spark.sink import BatchWriter

        options = sink_options(self.options, streaming=False)
        if overwrite:
            raise OptionError("a log is appended to: write with mode('append')")
        check_sink_schema(schema, options.topic)
        return BatchWriter(options, schema)

    @said_first()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the sink of a streaming query."""
        from magnetar_spark.sink import StreamWriter

        options = sink_options(self.options, streaming=True)
        if overwrite:
            raise OptionError(
                "a log is appended to: write with outputMode('append'). Complete mode would write"
                " the whole result again with every batch"
            )
        check_sink_schema(schema, options.topic)
        return StreamWriter(options, schema)
