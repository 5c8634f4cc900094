"""A separate driver that offloads or restores, and is killed: as its argument says, JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from tests.spark.sessions import session

from magnetar_spark.jobs.offloading import offload as offloading
from magnetar_spark.jobs.offloading import restore as restoring
from magnetar_spark.jobs.offloading.directory import LocalDirectory
from magnetar_spark.jobs.offloading.offload_goal import Request as OffloadRequest
from magnetar_spark.jobs.offloading.offload_log import OffloadLog

OWNERS = {
    "OffloadLog": OffloadLog,
    "LocalDirectory": LocalDirectory,
    "_Restoring": restoring._Restoring,
}


def main() -> None:
    told = json.loads(sys.argv[1])
    spark = session(told["master"])
    for one in told["work"]:
        one = dict(one)
        job = one.pop("job")
        kill = one.pop("kill", None)
        if kill is not None:
            kill_at(*kill)
        one["servers"] = tuple(one["servers"])
        if job == "offload":
            offloading.offload(spark, OffloadRequest(**one))
        else:
            restoring.restore(spark, restoring.Request(**one))
    spark.stop()


def kill_at(owner: str, method: str, call: int) -> None:
    """SIGKILL for this process and its JVM, when a method has ended for the n-th time."""
    real = getattr(OWNERS[owner], method)
    calls = []

    def planted(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        calls.append(method)
        if len(calls) == call:
            os.killpg(0, signal.SIGKILL)
        return result

    setattr(OWNERS[owner], method, planted)


if __name__ == "__main__":
    main()
