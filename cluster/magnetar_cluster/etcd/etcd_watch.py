"""A watch of etcd: what changes below a prefix, from one revision on, in order.

A member of etcd that hangs, or that a network cut off, is silent, and so is one without changes. So
the watch asks for signs of life, and breaks when none comes.
Source: https://etcd.io/docs/v3.5/learning/api/, Watch API.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

from magnetar_cluster.directory.cluster_directory import ClusterDirectoryUnavailable
from magnetar_cluster.etcd.etcd_endpoint import WatchCall
from magnetar_cluster.etcd_wire import kv_pb2 as kv
from magnetar_cluster.etcd_wire import rpc_pb2 as pb

_SIGN_OF_LIFE = pb.WatchRequest(progress_request=pb.WatchProgressRequest())


class EtcdWatch:
    """A stream of changes.

    Attributes:
        address: of the endpoint.
        revision: all changes up to this one were read.
    """

    def __init__(self, call: WatchCall, address: str, revision: int, silence_ms_max: int) -> None:
        self._call = call
        self.address = address
        self._silence_ms_max = silence_ms_max
        self._asking: asyncio.Task[None] | None = None
        self.revision = revision

    async def begin(self, key: bytes, end: bytes) -> None:
        """Watch the keys from the first to the end, which is not included.

        Raises:
            grpc.aio.AioRpcError: the endpoint refuses.
            ClusterDirectoryUnavailable: the watch broke before it began.
        """
        create = pb.WatchCreateRequest(
            key=key, range_end=end, start_revision=self.revision + 1, progress_notify=True
        )
        try:
            await self._call.write(pb.WatchRequest(create_request=create))
        except asyncio.InvalidStateError:
            pass  # The call has ended; reading says why.
        response = await self._call.read()
        if not isinstance(response, pb.WatchResponse) or not response.created:
            raise ClusterDirectoryUnavailable(f"{self.address} began no watch")
        self._check(response)
        self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def read(self) -> list[kv.Event]:
        """Return the next changes; none: a sign of life.

        Raises:
            ClusterDirectoryUnavailable: the watch broke. It does not go on.
        """
        try:
            async with asyncio.timeout(self._silence_ms_max / 1_000):
                response = await self._call.read()
        except TimeoutError:
            raise ClusterDirectoryUnavailable(
                f"{self.address} was silent for {self._silence_ms_max} ms"
            ) from None
        except grpc.aio.AioRpcError as error:
            raise ClusterDirectoryUnavailable(f"{self.address}: {error.details()}") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ClusterDirectoryUnavailable("the connection to etcd was closed") from None
        if not isinstance(response, pb.WatchResponse):
            raise ClusterDirectoryUnavailable(f"{self.address} ended the watch")
        self._check(response)
        for event in response.events:
            self._follow(event.kv.mod_revision)
        return list(response.events)

    def cancel(self) -> None:
        """Stop the watch."""
        if self._asking is not None:
            self._asking.cancel()
        self._call.cancel()

    def _check(self, response: pb.WatchResponse) -> None:
        if response.compact_revision:
            raise ClusterDirectoryUnavailable(
                f"etcd has forgotten what followed revision {self.revision}; watch anew"
            )
        if response.canceled:
            raise ClusterDirectoryUnavailable(
                f"{self.address} ended the watch: {response.cancel_reason}"
            )
        if response.events and response.events[0].kv.mod_revision <= self.revision:
            # Members of etcd before 3.5.8 do so when they come back after a long time.
            raise ClusterDirectoryUnavailable(
                f"{self.address} told of revision {self.revision} twice"
            )

    def _follow(self, revision: int) -> None:
        if revision < self.revision:
            raise ClusterDirectoryUnavailable(f"{self.address} told of changes in no order")
        self.revision = revision

    async def _ask(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._silence_ms_max / 3_000)
                await self._call.write(_SIGN_OF_LIFE)
        except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            pass  # The reader learns the reason.
