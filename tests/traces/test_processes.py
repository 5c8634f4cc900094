"""Real servers and a real receiver: what servers have made is sent when they are told to end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.cli.running import running_standalone
from tests.traces.collector import collector

import magnetar


@pytest.mark.soak
def test_servers_send_their_spans_when_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing leaves before the end.
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))

    async def transact(address: str) -> None:
        async with await magnetar.connect(address, traces=provider) as client:
            await client.admin.topics.create("t", partitions=2)
            producer = await client.create_producer("t")
            txn = await client.begin_transaction()
            for partition in range(2):
                await producer.send(b"a message", txn=txn, partition=partition)
            await txn.commit(wait_finished=True)

    with collector() as one:
        with running_standalone(tmp_path, "--traces-endpoint", one.url) as servers:
            asyncio.run(transact(servers.environ["MAGNETAR_BROKER"]))
            assert one.spans() == []
        (whole,) = [span for span in memory.get_finished_spans() if span.parent is None]
        trace_id = whole.context.trace_id.to_bytes(16, "big")
        names = [span.name for span in one.spans() if span.trace_id == trace_id]
        assert names.count("send t") == 2
        assert names.count("EndTxn") == names.count("finish transaction") == 1
        # At the coordinator and at the broker.
        assert names.count("EndTxnOnParticipants") == 2
