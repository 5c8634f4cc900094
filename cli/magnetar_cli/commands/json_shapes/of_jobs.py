"""Types of what jobs on Spark print with `--json`."""

from __future__ import annotations

from typing import Any

from magnetar_spark.jobs.auditing import audit
from magnetar_spark.jobs.iceberg import tables
from magnetar_spark.jobs.offloading import offload, restore
from magnetar_spark.jobs.transforming import transform

SHAPES: dict[str, Any] = {
    "pipeline audit": audit.Report,
    "pipeline offload": offload.Report,
    "pipeline restore": restore.Report,
    "pipeline tables": tables.Report,
    "pipeline transform": transform.Report,
}
