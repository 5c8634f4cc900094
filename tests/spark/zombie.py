"""A zombie attempt at a task: it sends until its transaction has ended, and beyond."""

from __future__ import annotations

import json
import sys

from tests.spark.faults import Fault

from magnetar import blocking
from magnetar_core.errors import MagnetarError

SENDS_AFTER = 5


def main() -> None:
    told = json.loads(sys.argv[1])
    fault = Fault("zombie", told["sequence"], told["directory"])
    work = (told["name"], told["sequence"], told["run_token"])
    with blocking.connect(told["server"]) as client:
        txn = client.begin_named_transaction(*work)
        producers = [client.create_producer(told["topic"]) for _ in range(SENDS_AFTER)]
        for producer in producers:
            producer.send(b"zombie, before", partition=0, txn=txn)
        fault.note("zombies", "began")
        fault.wait_for("committed")
        for producer in producers:
            try:
                producer.send(b"zombie, after", partition=0, txn=txn)
                fault.note("zombies", "accepted")
            except MagnetarError as error:
                fault.note("zombies", f"refused {type(error).__name__}")
        try:
            client.begin_named_transaction(*work)
            fault.note("zombies", "accepted")
        except MagnetarError as error:
            fault.note("zombies", f"refused {type(error).__name__}")
        txn.withdraw()
    fault.first("zombie ended")


main()
