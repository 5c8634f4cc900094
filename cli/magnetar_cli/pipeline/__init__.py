"""`magnetar pipeline`: runs jobs on Spark. Each job is a module."""

from __future__ import annotations

import click

from magnetar_cli.pipeline.audit import audit
from magnetar_cli.pipeline.offload import offload
from magnetar_cli.pipeline.restore import restore


@click.group()
def pipeline() -> None:
    """Audit, offload or restore topics, on Spark.

    Each is a program for spark-submit too: python -m magnetar_cli.pipeline audit --help.
    """


for command in (audit, offload, restore):
    pipeline.add_command(command)
