"""A member of etcd that answers what a test says: stale, late, damaged, or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
from tests.waiting import for_ever

from magnetar_cluster.etcd_wire import rpc_pb2 as pb

CLUSTER_ID = 77


def header(term: int = 1, revision: int = 1) -> pb.ResponseHeader:
    return pb.ResponseHeader(cluster_id=CLUSTER_ID, revision=revision, raft_term=term)


def range_of_term(term: int) -> pb.RangeResponse:
    return pb.RangeResponse(header=header(term))


class FakeEtcd:
    """Answers each call with what `on_...` returns; without one it never answers.

    Attributes:
        watch_responses: what a watch says before it falls silent.
    """

    def __init__(self) -> None:
        self.on_range: Callable[[pb.RangeRequest], pb.RangeResponse] | None = None
        self.on_txn: Callable[[pb.TxnRequest], pb.TxnResponse] | None = None
        self.on_grant: Callable[[pb.LeaseGrantRequest], pb.LeaseGrantResponse] | None = None
        self.on_keep_alive: (
            Callable[[pb.LeaseKeepAliveRequest], pb.LeaseKeepAliveResponse] | None
        ) = None
        self.watch_responses: list[pb.WatchResponse] = []
        self.endpoint = ""
        self._server = grpc.aio.server()

    async def start(self) -> None:
        handlers: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {
            "KV": {
                "Range": grpc.unary_unary_rpc_method_handler(
                    self._range, pb.RangeRequest.FromString, pb.RangeResponse.SerializeToString
                ),
                "Txn": grpc.unary_unary_rpc_method_handler(
                    self._txn, pb.TxnRequest.FromString, pb.TxnResponse.SerializeToString
                ),
            },
            "Lease": {
                "LeaseGrant": grpc.unary_unary_rpc_method_handler(
                    self._grant,
                    pb.LeaseGrantRequest.FromString,
                    pb.LeaseGrantResponse.SerializeToString,
                ),
                "LeaseKeepAlive": grpc.stream_stream_rpc_method_handler(
                    self._keep_alive,
                    pb.LeaseKeepAliveRequest.FromString,
                    pb.LeaseKeepAliveResponse.SerializeToString,
                ),
            },
            "Watch": {
                "Watch": grpc.stream_stream_rpc_method_handler(
                    self._watch, pb.WatchRequest.FromString, pb.WatchResponse.SerializeToString
                )
            },
        }
        self._server.add_generic_rpc_handlers(
            tuple(
                grpc.method_handlers_generic_handler(f"etcdserverpb.{service}", methods)
                for service, methods in handlers.items()
            )
        )
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    async def _range(self, request: pb.RangeRequest, context: object) -> pb.RangeResponse:
        return self.on_range(request) if self.on_range else await for_ever()

    async def _txn(self, request: pb.TxnRequest, context: object) -> pb.TxnResponse:
        return self.on_txn(request) if self.on_txn else await for_ever()

    async def _grant(self, request: pb.LeaseGrantRequest, context: object) -> pb.LeaseGrantResponse:
        return self.on_grant(request) if self.on_grant else await for_ever()

    async def _keep_alive(
        self, requests: AsyncIterator[pb.LeaseKeepAliveRequest], context: object
    ) -> AsyncIterator[pb.LeaseKeepAliveResponse]:
        async for request in requests:
            yield self.on_keep_alive(request) if self.on_keep_alive else await for_ever()

    async def _watch(
        self, requests: AsyncIterator[pb.WatchRequest], context: object
    ) -> AsyncIterator[pb.WatchResponse]:
        async for request in requests:
            if request.HasField("create_request"):
                for response in self.watch_responses:
                    yield response
