"""A separate driver, to be killed: copies "in" to "out" as its argument says, JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.spark.faults import FaultySource
from tests.spark.sessions import session

PATIENCE_S = 300.0


def main() -> None:
    told = json.loads(sys.argv[1])
    fault_dir = Path(told["fault_dir"])
    # The JVM belongs to this group, which begins with this process.
    (fault_dir / "driver").write_text(str(os.getpgid(0)))
    spark = session(told["master"], **told["settings"])
    spark.dataSource.register(FaultySource)
    frame = (
        spark.readStream.format("magnetar-faulty")
        .options(**told["source"])
        .load()
        .select("key", "value")
    )
    query = (
        frame.writeStream.format("magnetar-faulty")
        .options(**told["sink"])
        .option("checkpointLocation", told["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(int(PATIENCE_S))
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
