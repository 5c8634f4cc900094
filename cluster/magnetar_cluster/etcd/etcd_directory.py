"""The directory of a cluster in etcd.

An answer may be lost, and the question with it or not; a question may arrive late, after others
that were asked later. So each change is a transaction that names what it builds upon.
Source: docs/design/0009-owners.md, The directory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from zlib import crc32

import grpc

from magnetar_cluster.directory.cluster_directory import (
    ClusterDirectoryUnavailable,
    LeaseExpired,
    LeaseId,
)
from magnetar_cluster.directory.view import Format, Member, MemberName, ShardName, View
from magnetar_cluster.etcd.etcd_client import EtcdClient, EtcdRefused
from magnetar_cluster.etcd.etcd_rows import (
    DamagedRow,
    Keys,
    Rows,
    read_format,
    write_format,
    write_member,
)
from magnetar_cluster.etcd.etcd_settings import EtcdSettings
from magnetar_cluster.etcd.etcd_watch import EtcdWatch
from magnetar_cluster.etcd_wire import kv_pb2 as kv
from magnetar_cluster.etcd_wire import rpc_pb2 as pb
from magnetar_storage.durable_mark import DurableMark, read_mark, write_mark
from magnetar_storage.store import StoreDamaged

log = logging.getLogger(__name__)

# Of changes to a row that others change at the same time.
_ATTEMPTS_MAX = 20


class EtcdDirectory:
    """A Directory over etcd 3.4 and later; 3.5.13 and later for more than tests.

    A lease lasts whole seconds: its duration is rounded up. etcd has a minimum of its own, one and
    a half of its election timeout (2 s with its defaults), and lets leases begin anew when its
    leader changes. So a lease may last longer than was asked for, and never less: except with etcd
    before 3.5.13, where a former leader that wakes up may end leases of others
    (https://github.com/etcd-io/etcd/issues/15247).

    Args:
        cluster: id of the cluster; rows of others are not touched.
        asker: a name of the asking process. Processes with different names begin at different
            endpoints.
    """

    def __init__(self, settings: EtcdSettings, cluster: str, asker: str = "") -> None:
        self._keys = Keys(cluster)
        self._client = EtcdClient(settings, first=crc32(asker.encode()))
        # Rows that were complained of, with the revision in which they were written.
        self._damaged: dict[bytes, int] = {}

    async def format(self, wanted: Format | None) -> Format | None:
        """Return the cluster's format; fix it as given if the cluster is new."""
        if wanted is None:
            answer = await self._client.range(pb.RangeRequest(key=self._keys.format))
            row = answer.kvs[0] if answer.kvs else None
        else:
            base = _created_at(self._keys.format, 0)
            written = await self._put_or_read(base, write_format(wanted), 0)
            if written.succeeded:
                return wanted
            row = _row(written)
        if row is None:
            return None
        try:
            return read_format(row.value)
        except DamagedRow as damage:
            raise ClusterDirectoryUnavailable(
                f"etcd's row {row.key.decode()} is damaged: {damage}"
            ) from None

    async def grant(self, duration_ms: int) -> LeaseId:
        """Begin a lease of at least this duration."""
        ttl_s = -(-duration_ms // 1_000)
        answer = await self._client.grant(ttl_s)
        if answer.error or not answer.ID or ttl_s > answer.TTL:
            raise ClusterDirectoryUnavailable(
                f"etcd granted no lease of {ttl_s} s, but {answer.TTL} s: {answer.error}"
            )
        return answer.ID

    async def renew(self, lease: LeaseId) -> None:
        """Begin the lease's duration anew."""
        if not await self._client.keep_alive(lease, self._keys.format):
            raise LeaseExpired(f"lease {lease:x} has ended")

    async def revoke(self, lease: LeaseId) -> None:
        """End a lease."""
        try:
            await self._client.revoke(lease)
        except EtcdRefused as refused:
            if refused.code is not grpc.StatusCode.NOT_FOUND:
                raise

    async def join(self, lease: LeaseId, name: MemberName, member: Member) -> bool:
        """Become a member until the lease ends; return False if another lease has the name."""
        key, value = self._keys.member(name), write_member(member)
        base = _created_at(key, 0)
        for _ in range(_ATTEMPTS_MAX):
            answer = await self._put_or_read(base, value, lease)
            if answer.succeeded:
                return True
            row = _row(answer)
            if row is None:
                base = _created_at(key, 0)
            elif row.lease != lease:
                return False
            elif row.value == value:
                return True
            else:
                base = _changed_at(key, row.mod_revision)
        raise ClusterDirectoryUnavailable(
            f"others change the row of {name.name} all the time; try again"
        )

    async def claim(self, lease: LeaseId, shard: ShardName, member: str) -> int | None:
        """Become the owner of a shard that has none; return the epoch, or None."""
        key, value = self._keys.owner(shard), member.encode()
        answer = await self._put_or_read(_created_at(key, 0), value, lease)
        if answer.succeeded:
            return answer.header.revision
        row = _row(answer)
        if row is None or row.lease != lease or row.value != value:
            return None
        return row.create_revision

    async def release(self, shard: ShardName, epoch: int) -> None:
        """Give up an ownership."""
        key = self._keys.owner(shard)
        await self._client.txn(
            pb.TxnRequest(
                compare=[_created_at(key, epoch)],
                success=[pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))],
            )
        )

    async def drain(self, name: MemberName, *, draining: bool) -> None:
        """Ask a member to give up its shards, or stop asking it."""
        await self._wish(self._keys.draining(name), b"draining" if draining else b"")

    async def pin(self, shard: ShardName, member: str) -> None:
        """Pin a shard to a member; an empty name removes the pin."""
        await self._wish(self._keys.pin(shard), member.encode())

    async def note_durable(self, shard: ShardName, epoch: int, mark: DurableMark) -> bool:
        """Keep how far the store of a shard is durable, if the ownership is still this one."""
        put = pb.PutRequest(key=self._keys.written(shard), value=write_mark(mark))
        answer = await self._client.txn(
            pb.TxnRequest(
                compare=[_created_at(self._keys.owner(shard), epoch)],
                success=[pb.RequestOp(request_put=put)],
            )
        )
        return answer.succeeded

    async def durable_mark(self, shard: ShardName) -> DurableMark | None:
        """Return how far the store of a shard was durable; None: it is not known."""
        key = self._keys.written(shard)
        rows = (await self._client.range(pb.RangeRequest(key=key))).kvs
        try:
            return read_mark(rows[0].value) if rows else None
        except ValueError as error:
            raise StoreDamaged(
                f"etcd's row {key.decode()}, which says how far {shard} was durable, cannot be"
                f" read: {error}"
            ) from error

    async def keeps_revisions(self, count: int) -> bool:
        """Return whether etcd keeps this many revisions: then it was not compacted for long."""
        key = self._keys.format
        newest = (await self._client.range(pb.RangeRequest(key=key))).header.revision
        if newest <= count:
            return False
        try:
            await self._client.range(pb.RangeRequest(key=key, revision=newest - count))
        except EtcdRefused as refused:
            if refused.code is grpc.StatusCode.OUT_OF_RANGE:
                return False
            raise
        return True

    def watch(self) -> AsyncGenerator[View, None]:
        """Return the present view, and then each later one."""
        return self._views()

    async def close(self) -> None:
        """Stop asking."""
        await self._client.close()

    async def _put_or_read(self, base: pb.Compare, value: bytes, lease: int) -> pb.TxnResponse:
        """Write a row, bound to a lease, if it is as it was; else read it."""
        put = pb.PutRequest(key=base.key, value=value, lease=lease)
        request = pb.TxnRequest(
            compare=[base],
            success=[pb.RequestOp(request_put=put)],
            failure=[pb.RequestOp(request_range=pb.RangeRequest(key=base.key))],
        )
        try:
            return await self._client.txn(request)
        except EtcdRefused as refused:
            if refused.code is grpc.StatusCode.NOT_FOUND:
                raise LeaseExpired(f"lease {lease:x} has ended") from None
            raise

    async def _wish(self, key: bytes, value: bytes) -> None:
        """Write a row that outlives its writer, or delete it if the value is empty.

        The row `wishes` is written with it, if it is still as it was read. So the last writer
        decides, and a copy of an older write that arrives late finds the row changed.
        """
        wishes = self._keys.wishes
        if value:
            change = pb.RequestOp(request_put=pb.PutRequest(key=key, value=value))
        else:
            change = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
        for _ in range(_ATTEMPTS_MAX):
            rows = (await self._client.range(pb.RangeRequest(key=wishes))).kvs
            base = _changed_at(wishes, rows[0].mod_revision if rows else 0)
            note = pb.RequestOp(request_put=pb.PutRequest(key=wishes))
            answer = await self._client.txn(pb.TxnRequest(compare=[base], success=[change, note]))
            if answer.succeeded:
                return
        raise ClusterDirectoryUnavailable("others change drains and pins all the time; try again")

    async def _views(self) -> AsyncGenerator[View, None]:
        rows, revision = await self._list()
        watch = await self._client.watch(self._keys.prefix, self._keys.end, revision)
        changed = asyncio.Event()
        reader = asyncio.get_running_loop().create_task(self._follow(watch, rows, changed))
        reader.add_done_callback(lambda _: changed.set())
        try:
            yield rows.view(revision)
            while True:
                await changed.wait()
                changed.clear()
                if reader.done():
                    reader.result()
                self._client.saw(watch.revision)
                yield rows.view(watch.revision)
        finally:
            reader.cancel()
            watch.cancel()
            # A reader that has stopped has no use for the reason why the watch broke meanwhile.
            await asyncio.gather(reader, return_exceptions=True)

    async def _list(self) -> tuple[Rows, int]:
        request = pb.RangeRequest(key=self._keys.prefix, range_end=self._keys.end)
        answer = await self._client.range(request)
        revision = answer.header.revision
        rows = Rows(self._keys)
        self._put(rows, answer.kvs)
        return rows, revision

    async def _follow(self, watch: EtcdWatch, rows: Rows, changed: asyncio.Event) -> None:
        """Read on while no view is taken, so that the next view is the latest."""
        try:
            while True:
                events = await watch.read()
                for event in events:
                    if event.type == kv.Event.DELETE:
                        rows.delete(event.kv.key)
                    else:
                        self._put(rows, [event.kv])
                if events:
                    changed.set()
        except ClusterDirectoryUnavailable:
            self._client.leave(watch.address)
            raise

    def _put(self, rows: Rows, changes: Iterable[kv.KeyValue]) -> None:
        for row in changes:
            try:
                rows.put(row)
            except DamagedRow as damage:
                if self._damaged.get(row.key) != row.mod_revision:
                    self._damaged[row.key] = row.mod_revision
                    log.error("etcd's row %r is left out: %s", row.key, damage)


def _created_at(key: bytes, revision: int) -> pb.Compare:
    """Whether a row was created in this revision; 0: whether there is none."""
    return pb.Compare(
        result=pb.Compare.EQUAL,
        target=pb.Compare.CREATE,
        key=key,
        create_revision=revision,
    )


def _changed_at(key: bytes, revision: int) -> pb.Compare:
    """Whether a row was written last in this revision; 0: whether there is none."""
    return pb.Compare(
        result=pb.Compare.EQUAL,
        target=pb.Compare.MOD,
        key=key,
        mod_revision=revision,
    )


def _row(answer: pb.TxnResponse) -> kv.KeyValue | None:
    """Return the row that a transaction read instead of writing it."""
    for response in answer.responses:
        for row in response.response_range.kvs:
            return row
    return None
