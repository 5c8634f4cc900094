"""Two brokers and a coordinator in virtual time, and a client, whose spans are all kept here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from tests.broker.cluster import Cluster
from tests.broker.cluster import run as run_cluster
from tests.client.fakes import FAST
from tests.configs import coordinator_config
from tests.simulation.nodes import Environment, ServerNode
from tests.simulation.raw import BROKER, COORDINATOR
from tests.virtual_loop import VirtualClock, VirtualLoop

import magnetar
from magnetar.testing.lives import Incarnation
from magnetar_coordinator.coordinator import Coordinator
from magnetar_coordinator.metadata.records import FAMILIES
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.membership.placement import shard_of
from magnetar_core.server.commands import CommandSession, Conversation
from magnetar_core.traces.otel import OtelServerTraces, tracer_of
from magnetar_storage.memory.engine import MemoryStore

TOPIC = "invoices"
TC = "tc-0"
CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Seen:
    """The parts of a span that tests check."""

    name: str
    process: str
    parent: Seen | None

    def path(self) -> str:
        """The span and all above it: "process: name < process: name ..."."""
        own = f"{self.process}: {self.name}"
        return own if self.parent is None else f"{own} < {self.parent.path()}"


# A span of a process that crashed before the span ended.
LOST = Seen("", "lost", None)


class Spans:
    """The spans of all processes, as if a collector had them."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self.memory = InMemorySpanExporter()
        self._sampler = sampler

    def provider(self, process: str) -> TracerProvider:
        provider = TracerProvider(
            sampler=self._sampler,
            resource=Resource({"service.name": process}),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(SimpleSpanProcessor(self.memory))
        return provider

    def server(self, process: str) -> OtelServerTraces:
        return OtelServerTraces(tracer_of(self.provider(process)))

    def all(self) -> list[ReadableSpan]:
        return list(self.memory.get_finished_spans())

    def named(self, start: str) -> list[ReadableSpan]:
        return [one for one in self.all() if one.name.startswith(start)]

    def of_trace(self, trace_id: int) -> list[ReadableSpan]:
        return [one for one in self.all() if one.context.trace_id == trace_id]

    def paths(self, trace_id: int) -> list[str]:
        """Every span of a trace with all above it, sorted; a parent that is missing is LOST."""
        by_id = {one.context.span_id: one for one in self.of_trace(trace_id)}

        def seen(span: ReadableSpan) -> Seen:
            above = None
            if span.parent is not None:
                parent = by_id.get(span.parent.span_id)
                above = LOST if parent is None else seen(parent)
            return Seen(span.name, str(span.resource.attributes["service.name"]), above)

        return sorted(seen(one).path() for one in by_id.values())


class Traced:
    """A server whose conversations have spans: what GrpcServer does with its traces."""

    def __init__(self, server: Any, traces: OtelServerTraces) -> None:
        self._server = server
        self._traces = traces

    def accept(self, conversation: Conversation) -> CommandSession:
        session: CommandSession = self._server.accept(replace(conversation, traces=self._traces))
        return session


class TracedCluster(Cluster):
    """Brokers b-0 and b-1, and the coordinator tc-0."""

    def __init__(self, loop: VirtualLoop, count: int, *, spans: Spans, **settings: Any) -> None:
        self.spans = spans
        coordinators = (MemberAddress(name=TC, address=TC, tcid=0),)
        super().__init__(loop, count, coordinators=coordinators, **settings)
        environment = Environment(loop, self.network, self.network.trace, "seed")
        self.coordinator = ServerNode(environment, TC, self._make_coordinator, FAMILIES)
        self.coordinator.restarts = False
        self.network.server_names |= {TC}

    def _make(
        self, node: ServerNode, store: MemoryStore, incarnation: Incarnation
    ) -> tuple[Any, dict[str, Any]]:
        broker, servers = super()._make(node, store, incarnation)
        traces = self.spans.server(node.name)
        return broker, {BROKER: Traced(servers[BROKER], traces)}

    def _make_coordinator(
        self, node: ServerNode, store: MemoryStore, incarnation: Incarnation
    ) -> tuple[Any, dict[str, Any]]:
        traces = self.spans.server(TC)
        coordinator = Coordinator(
            coordinator_config(
                name=TC,
                broker_addresses=tuple(one.name for one in self.nodes),
                answer_deadline_ms=1_000,
            ),
            store,
            self.network.transport(incarnation),
            node.clock,
            Random(f"{TC}/{node.life}"),
            node.on_fatal,
            traces=traces,
        )
        return coordinator, {COORDINATOR: Traced(coordinator.server, traces)}

    async def start_coordinator(self) -> None:
        self.coordinator.start()
        await asyncio.wait_for(self.coordinator.ready.wait(), 120)

    async def connect(self, traces: Any) -> magnetar.Client:
        """A client that makes spans with a provider, or none with False."""
        return await magnetar.connect(
            "b-0",
            transport=self.network.transport(self.loop.incarnate(CLIENT)),
            clock=VirtualClock(),
            random=Random("client"),
            config=FAST,
            traces=traces,
        )


class World:
    """The world of a scenario: the cluster, a client that makes spans, and a topic."""

    def __init__(self, cluster: TracedCluster, client: magnetar.Client, spans: Spans) -> None:
        self.cluster = cluster
        self.client = client
        self.spans = spans
        # A partition at each broker.
        self.partitions: list[int] = []

    async def make_topic(self) -> None:
        topic_id = await self.client.admin.topics.create(TOPIC, partitions=4)
        at = [shard_of(topic_id, one) for one in range(4)]
        self.partitions = [at.index(0), at.index(1)]

    async def fill(self, txn: Any, *brokers: int) -> None:
        """Send a message of the transaction to a partition at each of these brokers."""
        producer = await self.client.create_producer(TOPIC)
        for broker in brokers:
            await producer.send(b"a message", txn=txn, partition=self.partitions[broker])

    async def finished(self, count: int = 1) -> int:
        """Wait until transactions have ended everywhere; return the trace of the last one."""
        await self.cluster.until(lambda: len(self.spans.named("finish transaction")) >= count)
        trace_id: int = self.spans.named("finish transaction")[-1].context.trace_id
        return trace_id


def run(
    scenario: Callable[[World], Awaitable[None]],
    *,
    sampler: Sampler = ALWAYS_ON,
    client_traces: bool = True,
) -> Spans:
    """Run a scenario; return the spans."""
    spans = Spans(sampler)

    async def within(cluster: Cluster) -> None:
        assert isinstance(cluster, TracedCluster)
        # The network does not fail at random in these tests.
        cluster.network.quiet = True
        await cluster.start()
        await cluster.start_coordinator()
        await cluster.until(lambda: all(map(cluster.has_met, range(2))))
        provider = spans.provider(CLIENT) if client_traces else False
        async with await cluster.connect(provider) as client:
            world = World(cluster, client, spans)
            await world.make_topic()
            spans.memory.clear()
            await scenario(world)
        coordinator = cluster.coordinator.server
        await cluster.until(lambda: not coordinator._runtime.shard.live)
        # What has ended leaves nothing in memory.
        kept = coordinator._traces
        assert not kept._causes
        assert not kept._finishing
        assert not any(peer.ends._spans for peer in coordinator._brokers._peers.values())
        if client._runtime.traces is not None:
            assert not client._runtime.traces._transactions
            assert not client._transactions._spans

    run_cluster(within, 2, start=False, make=TracedCluster, spans=spans)
    return spans


def current_is_nothing() -> bool:
    """Whether no span is the current one."""
    return not trace.get_current_span().get_span_context().is_valid
