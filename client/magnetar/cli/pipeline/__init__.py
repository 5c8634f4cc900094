"""`magnetar pipeline`: jobs on Spark, a module each."""

from __future__ import annotations

import click

from magnetar.cli.pipeline.audit import audit
from magnetar.cli.pipeline.offload import offload
from magnetar.cli.pipeline.restore import restore
from magnetar.cli.pipeline.transform import transform


@click.group()
def pipeline() -> None:
    """Run jobs on Spark.

    Each is a program too, for spark-submit: python -m magnetar_spark.jobs.audit --help.
    """


for command in (audit, offload, restore, transform):
    pipeline.add_command(command)
