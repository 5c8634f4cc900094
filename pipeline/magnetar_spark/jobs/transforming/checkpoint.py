"""The checkpoint of a job: Spark's directory, with a file that says to which job it belongs.

The checkpoint may be on any of Hadoop's file systems. Spark itself does not notice when a query
continues with other windows or another topic than it began with, and mixes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from magnetar_spark.jobs.failures import JobError

JOB_FILE = "magnetar-job.json"
# Of Spark: written when a query starts for the first time.
_METADATA = "metadata"


class CheckpointRefused(JobError):
    """The checkpoint belongs to another query, or cannot be used. Nothing was done."""


class Checkpoint:
    """The checkpoint of a job.

    Attributes:
        path: the path that the user gave.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        context = spark.sparkContext
        self._jvm: Any = context._jvm
        self._configuration = context._jsc.hadoopConfiguration()

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Check that the checkpoint belongs to a job with these settings, or claim a new one.

        Raises:
            CheckpointRefused: it belongs to another job, or the directory cannot be read or
                written.
        """
        try:
            text = self._read(JOB_FILE)
            if text is None:
                if self._read(_METADATA) is not None:
                    raise CheckpointRefused(
                        f"{self.path} is the checkpoint of a query that is not such a job: name "
                        "another directory"
                    )
                self._write(JOB_FILE, json.dumps(settings, indent=2) + "\n")
                return
        except Py4JError as error:
            raise CheckpointRefused(
                f"cannot use the checkpoint {self.path}: {_reason(error)}"
            ) from None
        check_settings(self.path, text, settings)

    def batch_watermark_ms(self, batch: int) -> int:
        """Return the watermark of a batch, in milliseconds; 0 before the first batch.

        It comes from Spark's log of offsets, which Spark writes before the batch runs. So it is the
        same however often the batch is repeated.
        """
        if batch < 0:
            return 0
        text = self._read(f"offsets/{batch}")
        if text is None:
            raise CheckpointRefused(f"{self.path} has lost its batch {batch}: begin with a new one")
        return batch_watermark_of(text)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path, name)

    def _read(self, name: str) -> str | None:
        path = self._path(name)
        system = path.getFileSystem(self._configuration)
        if not system.exists(path):
            return None
        stream = system.open(path)
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return text

    def _write(self, name: str, text: str) -> None:
        """Write a file atomically: a crash leaves either the whole file or none."""
        path, begun = self._path(name), self._path(f".{name}.begun")
        system = path.getFileSystem(self._configuration)
        stream = system.create(begun, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        if not system.rename(begun, path):
            raise CheckpointRefused(f"cannot write {path.toString()}")


def check_settings(path: str, text: str, settings: Mapping[str, Any]) -> None:
    """Check that a checkpoint was begun with the same settings.

    Args:
        path: the checkpoint's path, for errors.
        text: the content of the checkpoint's JOB_FILE.
        settings: the settings, by option.
    Raises:
        CheckpointRefused: settings differ; the error names them.
    """
    try:
        begun = json.loads(text)
    except ValueError:
        begun = None
    if not isinstance(begun, dict):
        raise CheckpointRefused(f"{path}/{JOB_FILE} is damaged: name another checkpoint")
    different = [
        f"{option} {begun.get(option) or 'left out'}"
        for option in sorted({*begun, *settings})
        if begun.get(option) != settings.get(option)
    ]
    if different:
        raise CheckpointRefused(
            f"{path} was begun with {', '.join(different)}: go on so, or name another checkpoint"
        )


def batch_watermark_of(text: str) -> int:
    """Return the watermark in a file of Spark's log of offsets, in milliseconds.

    Source: Spark, OffsetSeqLog: a version, metadata as JSON, then an offset of each source.
    """
    watermark: int = json.loads(text.splitlines()[1])["batchWatermarkMs"]
    return watermark


def _reason(error: Py4JError) -> str:
    cause = getattr(error, "java_exception", None)
    return " ".join(str(cause.toString() if cause is not None else error).split())
