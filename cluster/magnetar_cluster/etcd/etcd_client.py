"""Client of etcd: asks one member, and the next one when that does not answer.

Every call may reach etcd twice, or late: what a call does has to be the same when it is repeated.
Source: https://etcd.io/docs/v3.5/dev-guide/api_reference_v3/.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import grpc
import grpc.aio

from magnetar_cluster.background import CallCancelled, outcome_of
from magnetar_cluster.directory.cluster_directory import (
    ClusterDirectoryUnavailable,
    ClusterDirectoryWentBack,
)
from magnetar_cluster.etcd.etcd_endpoint import EtcdEndpoint
from magnetar_cluster.etcd.etcd_settings import EtcdSettings
from magnetar_cluster.etcd.etcd_watch import EtcdWatch
from magnetar_cluster.etcd_wire import rpc_pb2 as pb

log = logging.getLogger(__name__)

# Pause after no endpoint answered.
_PAUSE_S = 0.05
# Another endpoint would say the same. All else is worth another attempt.
_FINAL = frozenset(
    {
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
# A member that has no leader says so at once, and ends streams.
_REQUIRE_LEADER = ("hasleader", "true")
# The answers to a token that is no longer valid: etcd has forgotten it, or the users or their roles
# have changed since. The second status also stands for other errors.
_TOKEN_REFUSED = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT})


class _Answer(Protocol):
    """An answer of etcd."""

    @property
    def header(self) -> pb.ResponseHeader: ...


RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT", bound=_Answer)
ResultT = TypeVar("ResultT")


class EtcdRefused(ClusterDirectoryUnavailable):
    """etcd answered, and does not do what it was asked for.

    Attributes:
        code: etcd's status.
    """

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"etcd refuses: {details}")
        self.code = code


class _Elsewhere(Exception):
    """This endpoint is of no use at the moment; its text says why."""


class EtcdClient:
    """Calls to etcd. All raise ClusterDirectoryUnavailable when no answer comes in time.

    Args:
        first: the endpoint to begin with, modulo their number.
    """

    def __init__(self, settings: EtcdSettings, first: int = 0) -> None:
        self._settings = settings
        self._endpoints = [EtcdEndpoint(endpoint, settings) for endpoint in settings.endpoints]
        self._present = first % len(self._endpoints)
        self._token = ""
        self._cluster_id = 0
        # Endpoints that belong to another cluster, with its id, as they said last.
        self._others: dict[str, int] = {}
        self._revision_seen = 0
        self._went_back = ""
        # What was wrong with the files when they were read last.
        self._complaint = ""
        self._closed = False

    @property
    def endpoint(self) -> str:
        """The endpoint that is asked at the moment."""
        return self._endpoints[self._present].address

    def saw(self, revision: int) -> None:
        """Note a revision that etcd has told of. An answer to a later question has no lower one."""
        self._revision_seen = max(self._revision_seen, revision)

    async def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """Read rows, as they are after all that was answered before."""
        return await self._somewhere(lambda one: self._ask_rows(one, one.range, request))

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """Compare rows, and change some, at once."""
        return await self._somewhere(lambda one: self._ask_rows(one, one.txn, request))

    async def grant(self, ttl_s: int) -> pb.LeaseGrantResponse:
        """Begin a lease. If an answer is lost, one more begins and ends unused."""
        request = pb.LeaseGrantRequest(TTL=ttl_s)
        return await self._somewhere(lambda one: self._ask(one, one.grant, request))

    async def revoke(self, lease: int) -> None:
        """End a lease, with all rows that are bound to it."""
        request = pb.LeaseRevokeRequest(ID=lease)
        await self._somewhere(lambda one: self._ask(one, one.revoke, request))

    async def keep_alive(self, lease: int, readable: bytes) -> bool:
        """Begin the duration of a lease anew; return False if the lease has ended.

        Args:
            readable: a key that the user may read; no row needs to be there.
        """
        return await self._somewhere(lambda one: self._keep_alive(one, lease, readable))

    async def watch(self, key: bytes, end: bytes, revision: int) -> EtcdWatch:
        """Watch the keys from the first to the end, which is not included.

        Args:
            revision: the last one that is known.
        """
        return await self._somewhere(lambda one: self._watch(one, key, end, revision))

    def leave(self, address: str) -> None:
        """Ask another endpoint from now on, if this is the present one."""
        if self.endpoint == address:
            self._present = (self._present + 1) % len(self._endpoints)

    async def close(self) -> None:
        """End all calls."""
        self._closed = True
        for endpoint in self._endpoints:
            await endpoint.close()

    async def _somewhere(self, attempt: Callable[[EtcdEndpoint], Awaitable[ResultT]]) -> ResultT:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._settings.call_timeout_ms / 1_000
        reasons: dict[str, str] = {}
        count = 0
        token_was_refused = False
        while not self._is_closed() and (left_s := deadline_s - loop.time()) > 0:
            endpoint = self._endpoints[self._present]
            if self._went_back:
                raise ClusterDirectoryWentBack(self._went_back)
            try:
                async with asyncio.timeout(min(left_s, self._settings.endpoint_timeout_ms / 1_000)):
                    return await outcome_of(attempt(endpoint))
            except grpc.aio.AioRpcError as error:
                if self._token and error.code() in _TOKEN_REFUSED and not token_was_refused:
                    self._token = ""
                    token_was_refused = True
                    continue
                if error.code() in _FINAL:
                    raise EtcdRefused(error.code(), error.details() or "") from None
                reasons[endpoint.address] = error.details() or error.code().name
            except TimeoutError:
                # The last attempt may have had little time; what was said before tells more.
                reasons.setdefault(endpoint.address, "no answer in time")
            except ClusterDirectoryWentBack:
                raise
            except (_Elsewhere, ClusterDirectoryUnavailable) as reason:
                reasons[endpoint.address] = str(reason)
            except CallCancelled:
                # Its connection was closed: by close(), or by a call that has found new files.
                continue
            await self._read_again()
            self.leave(endpoint.address)
            count += 1
            if count % len(self._endpoints) == 0:
                await asyncio.sleep(min(_PAUSE_S, max(0.0, deadline_s - loop.time())))
        if self._is_closed():
            raise ClusterDirectoryUnavailable("the connection to etcd was closed")
        raise ClusterDirectoryUnavailable(
            f"etcd does not answer within {self._settings.call_timeout_ms} ms: "
            + "; ".join(f"{address}: {reason}" for address, reason in sorted(reasons.items()))
        )

    async def _read_again(self) -> None:
        """Read files again: an etcd that does not answer may accept new certificates only.

        A connection that works needs none, and is left alone.
        """
        if self._settings.read_again is None or self._is_closed():
            return
        try:
            found = self._settings.read_again()
        except ValueError as error:
            # A program that replaces several files is seen in the middle.
            if str(error) != self._complaint:
                log.warning(
                    "new files for etcd are not used, the previous ones stay in use: %s", error
                )
            self._complaint = str(error)
            return
        self._complaint = ""
        if found == self._settings:
            return
        log.info("files for etcd have changed: it is connected anew")
        self._settings = found
        await asyncio.gather(*[endpoint.use(found) for endpoint in self._endpoints])

    def _is_closed(self) -> bool:
        return self._closed

    async def _ask(
        self,
        endpoint: EtcdEndpoint,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, AnswerT],
        request: RequestT,
    ) -> AnswerT:
        metadata = await self._metadata(endpoint)
        answer = await method(request, metadata=metadata, timeout=self._timeout_s)
        self._check(endpoint, answer)
        return answer

    async def _ask_rows(
        self,
        endpoint: EtcdEndpoint,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, AnswerT],
        request: RequestT,
    ) -> AnswerT:
        """Ask what a majority agrees on: its revision is that of the moment, or a later one.

        Of answers to other calls it is the endpoint's own, which may lag behind.
        """
        seen = self._revision_seen
        answer = await self._ask(endpoint, method, request)
        revision = answer.header.revision
        if revision < seen:
            raise self._back(f"{endpoint.address} went back from revision {seen} to {revision}")
        self.saw(revision)
        return answer

    async def _keep_alive(self, endpoint: EtcdEndpoint, lease: int, readable: bytes) -> bool:
        """Renew a lease at the leader of the present term.

        Renewals do not go through etcd's log. A leader that slept, or was cut off, renews a lease
        that its successor has ended, and denies one that its successor has granted. So a read,
        for which a majority has to agree on the leader, shows that the term is still the one
        in which the renewal was answered.
        """
        for _ in range(2):
            term, ttl_s = await self._keep_alive_once(endpoint, lease)
            probe = pb.RangeRequest(key=readable, count_only=True)
            read = await self._ask_rows(endpoint, endpoint.range, probe)
            if read.header.raft_term != term:
                raise _Elsewhere("its leader changed")
            if ttl_s > 0:
                return True
            # A new leader may not have read all leases yet; after the second time it has.
        return False

    async def _keep_alive_once(self, endpoint: EtcdEndpoint, lease: int) -> tuple[int, int]:
        """Return the leader's term, and the seconds that the lease has; 0: it is not known."""
        metadata = await self._metadata(endpoint)
        # One stream for each renewal, so that no answer is taken for that of another one.
        call = endpoint.keep_alive(metadata=metadata, timeout=self._timeout_s)
        try:
            try:
                await call.write(pb.LeaseKeepAliveRequest(ID=lease))
                await call.done_writing()
            except asyncio.InvalidStateError:
                pass  # The call has ended; reading says why.
            answer = await call.read()
        finally:
            call.cancel()
        if not isinstance(answer, pb.LeaseKeepAliveResponse) or lease != answer.ID:
            raise _Elsewhere("it did not answer a renewal")
        self._check(endpoint, answer)
        return answer.header.raft_term, answer.TTL

    async def _watch(
        self, endpoint: EtcdEndpoint, key: bytes, end: bytes, revision: int
    ) -> EtcdWatch:
        metadata = await self._metadata(endpoint)
        watch = EtcdWatch(
            endpoint.watch(metadata=metadata),
            endpoint.address,
            revision,
            self._settings.silence_ms_max,
        )
        try:
            await watch.begin(key, end)
        except BaseException:
            watch.cancel()
            raise
        return watch

    async def _metadata(self, endpoint: EtcdEndpoint) -> tuple[tuple[str, str], ...]:
        if not self._settings.user:
            return (_REQUIRE_LEADER,)
        if not self._token:
            request = pb.AuthenticateRequest(
                name=self._settings.user, password=self._settings.password
            )
            answer = await endpoint.authenticate(
                request, metadata=(_REQUIRE_LEADER,), timeout=self._timeout_s
            )
            self._check(endpoint, answer)
            self._token = answer.token
        return (_REQUIRE_LEADER, ("token", self._token))

    @property
    def _timeout_s(self) -> float:
        """Limit of etcd's own work on a call: the caller does not wait longer for the answer."""
        return self._settings.endpoint_timeout_ms / 1_000

    def _check(self, endpoint: EtcdEndpoint, answer: _Answer) -> None:
        """Two directories of one cluster would give each shard two owners."""
        found = answer.header.cluster_id
        if self._cluster_id and found != self._cluster_id:
            # It is asked again and again, and complained of when it says something new.
            if self._others.get(endpoint.address) != found:
                log.error(
                    "%s belongs to another etcd cluster (%x) than the endpoints that answered"
                    " before (%x); it is not used. Name endpoints of one etcd cluster only",
                    *(endpoint.address, found, self._cluster_id),
                )
            self._others[endpoint.address] = found
            # A single address may have been named by mistake. If most or all of them are of another
            # etcd, the known one no longer has a majority, and never answers again.
            agreed = list(self._others.values()).count(found)
            if 2 * agreed > len(self._endpoints):
                raise self._back(
                    f"{agreed} of its {len(self._endpoints)} endpoints belong to another cluster"
                    " than before"
                )
            raise _Elsewhere("it belongs to another etcd cluster")
        self._others.pop(endpoint.address, None)
        self._cluster_id = found

    def _back(self, how: str) -> ClusterDirectoryWentBack:
        self._went_back = (
            f"etcd is not what it was: {how}. If it was restored from a backup, start all servers"
            " of the cluster again"
        )
        return ClusterDirectoryWentBack(self._went_back)
