"""A process that writes to a database and to a topic, and kills itself at a step.

    python -m tests.system.dual_writer ADDRESS DATABASE TOPIC FIRST COUNT [STEP]

Writes COUNT numbers from FIRST on. With a STEP it dies right before that step of the second unit,
or of the recovery.
"""

from __future__ import annotations

import os
import signal
import sys

from examples.order_service import open_store

from magnetar import blocking
from magnetar.dual_write import DualWriter, Step

RECOVERY = (Step.INIT, Step.READ_STATE, Step.COMPLETE)


def main(address: str, database: str, topic: str, first: str, count: str, step: str = "") -> None:
    doomed = Step[step] if step else None
    table = f"numbers_{topic.replace('-', '_')}"
    seen = 0

    def on_step(reached: Step) -> None:
        nonlocal seen
        if reached is doomed:
            seen += 1
            if seen == 2 or reached in RECOVERY:
                os.kill(os.getpid(), signal.SIGKILL)

    store = open_store(database)
    store.execute(f"CREATE TABLE IF NOT EXISTS {table} (number INTEGER)")
    store.commit()
    mark = "?" if database.startswith("sqlite:") else "%s"
    with blocking.connect(address) as client:
        producer = client.transactional_producer(f"writer-{topic}", two_phase_commit=True)
        writer = DualWriter(producer, store, on_step=on_step)
        writer.start()
        for number in range(int(first), int(first) + int(count)):
            with writer.unit() as unit:
                unit.send(topic, b"%d" % number)
                on_step(Step.UPDATE_DATA)
                unit.store.execute(f"INSERT INTO {table} VALUES ({mark})", (number,))


if __name__ == "__main__":
    main(*sys.argv[1:])
