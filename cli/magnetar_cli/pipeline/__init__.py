"""`magnetar pipeline`: runs jobs on Spark. Each job is a module."""

from __future__ import annotations

import click

from magnetar_cli.pipeline.audit import audit
from magnetar_cli.pipeline.offload import offload
from magnetar_cli.pipeline.restore import restore
from magnetar_cli.pipeline.tables import tables
from magnetar_cli.pipeline.transform import transform


@click.group()
def pipeline() -> None:
    """Audit, offload, restore or transform topics, or bring tables up to date, on Spark.

    Each is a program for spark-submit too: python -m magnetar_cli.pipeline audit --help.
    """


for command in (audit, offload, restore, tables, transform):
    pipeline.add_command(command)
