"""Plays a script with a blocking client: each caller is a thread."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from random import Random
from typing import Any

from tests.client.fakes import BROKER_ADDRESS
from tests.client.fuzzing.arguments import PARTITIONS, TOPICS
from tests.client.fuzzing.calls import OTHER_TOPICS, Call, Calls, Objects, inner
from tests.client.fuzzing.ledger import Ledger, Record
from tests.client.fuzzing.play import CONFIG, READ_MAX, FuzzedCluster
from tests.client.fuzzing.script import SCOPE, Script, Step

from magnetar import blocking

# A real time in which each of them ends, on a busy machine, too.
PATIENCE_S = 120.0


class PlayOnThreads:
    """A blocking client, and callers that share it."""

    def __init__(self, script: Script, client: blocking.Client) -> None:
        self.ledger = Ledger()
        self._script = script
        self._client = client
        self._calls = Calls(script, Objects(client), self.ledger, in_real_time=True)
        self._threads: list[threading.Thread] = []

    def run(self) -> bool:
        """Play all steps, and close the client; return whether callers had closed it."""
        for topic in TOPICS:
            made = self._client.create_producer(topic, batch_messages_max=5, linger_ms=1)
            self._calls.objects.add(made)
        for number in range(self._script.callers):
            self._start(partial(self._caller, number))
        self._join()
        is_closed = self._client.inner._runtime.is_closing
        if not is_closed:
            for one in self._calls.used("Producer"):
                self._finish(self.ledger.begin(None, "flush", one), one.flush)
            for one in self._calls.used("Transaction"):
                record = self.ledger.begin(None, "commit", one, txn=inner(one))
                self._finish(record, one.commit)
        self._client.close()
        return is_closed

    def _start(self, work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _join(self) -> None:
        # Callers start others meanwhile.
        for thread in self._threads:
            thread.join(PATIENCE_S)
            if thread.is_alive():
                self.ledger.check_ends()

    def _caller(self, number: int) -> None:
        for step in self._script.steps:
            if step.caller != number:
                continue
            if step.method == SCOPE:
                self._block(step)
            elif (call := self._calls.of(step)) is not None:
                self._call(step, call)

    def _call(self, step: Step, call: Call) -> None:
        if step.fate == "leave":
            self._start(lambda: self._finish(call.record, call.make))
        else:
            self._finish(call.record, call.make)
            call.spoil()

    def _finish(self, record: Record, make: Callable[[], Any]) -> None:
        try:
            found = make()
            if isinstance(found, Iterator):
                found = list(islice(found, READ_MAX))
        except BaseException as error:
            self.ledger.end(record, error)
        else:
            self.ledger.end(record, None)
            self._calls.objects.add(found)

    def _block(self, step: Step) -> None:
        """A transaction in a `with`, in which errors of sends are swallowed."""
        random = Random(f"{self._script.seed}/{step.chance}")
        record = self.ledger.begin(step, SCOPE, self._client)
        try:
            with self._client.transaction(5, lazy=random.random() < 0.5) as txn:
                record.txn = inner(txn)
                for _ in range(random.choice((0, 1, 2, 4))):
                    producer, given, sent = self._calls.a_send(random, txn)
                    method = random.choice((producer.send, producer.enqueue, producer.send_nowait))
                    facts = {"txn": inner(txn), "contents": [sent]}
                    self._finish(
                        self.ledger.begin(None, method.__name__, producer, **facts),
                        partial(method, **given),
                    )
        except BaseException as error:
            self.ledger.end(record, error)
        else:
            self.ledger.end(record, None)


def play_on_threads(script: Script) -> Ledger:
    """Play a script in memory, without faults of the cluster.

    Raises:
        Wrong: a call did not keep what it says.
    """
    cluster = FuzzedCluster()
    for topic in TOPICS:
        cluster.topic(topic, PARTITIONS)
    for topic in OTHER_TOPICS:
        cluster.topic(topic)
    config = dataclasses.replace(CONFIG, close_timeout_ms=1_000)
    client = blocking.connect(BROKER_ADDRESS, transport=cluster.transport, config=config)
    playing = PlayOnThreads(script, client)
    is_closed = playing.run()
    playing.ledger.check_ends()
    playing.ledger.check_messages(cluster.stored(), is_closed=is_closed)
    return playing.ledger
