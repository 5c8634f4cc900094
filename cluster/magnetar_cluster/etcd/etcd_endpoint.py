"""A member of etcd at one address: a channel, and the calls of etcd's v3 API that we use.

Source: https://etcd.io/docs/v3.5/dev-guide/api_reference_v3/.
"""

from __future__ import annotations

from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from magnetar_cluster.etcd.etcd_settings import EtcdSettings
from magnetar_cluster.etcd_wire import rpc_pb2 as pb

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

# A list of all rows is one message: 1,000 members with 2,048 shards are 0.5 MB.
MESSAGE_BYTES_MAX = 64 << 20

_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    # The caller asks another endpoint meanwhile; one that is back should be noticed soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # etcd closes connections that ping more often than each 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)

KeepAliveCall = grpc.aio.StreamStreamCall[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]
WatchCall = grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse]


class EtcdEndpoint:
    """A connection to a member of etcd, made when it is used first, and again when it breaks."""

    def __init__(self, address: str, settings: EtcdSettings) -> None:
        self.address = address
        self._open(settings)

    async def use(self, settings: EtcdSettings) -> None:
        """Connect anew with other credentials; what runs on the former connection ends."""
        former = self._channel
        self._open(settings)
        await former.close()

    async def close(self) -> None:
        """End all calls and the connection."""
        await self._channel.close()

    def _open(self, settings: EtcdSettings) -> None:
        address = self.address
        credentials = settings.credentials()
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
        self.range = self._unary("KV/Range", pb.RangeRequest, pb.RangeResponse)
        self.txn = self._unary("KV/Txn", pb.TxnRequest, pb.TxnResponse)
        self.grant = self._unary("Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
        self.revoke = self._unary(
            "Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse
        )
        self.authenticate = self._unary(
            "Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse
        )
        self.keep_alive = self._stream(
            "Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse
        )
        self.watch = self._stream("Watch/Watch", pb.WatchRequest, pb.WatchResponse)

    def _unary(
        self, method: str, request: type[RequestT], response: type[ResponseT]
    ) -> grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]:
        return self._channel.unary_unary(
            f"/etcdserverpb.{method}", request.SerializeToString, response.FromString
        )

    def _stream(
        self, method: str, request: type[RequestT], response: type[ResponseT]
    ) -> grpc.aio.StreamStreamMultiCallable[RequestT, ResponseT]:
        return self._channel.stream_stream(
            f"/etcdserverpb.{method}", request.SerializeToString, response.FromString
        )
