"""Answers of etcd that are stale, late, damaged, or from a stranger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import grpc
import grpc.aio
import pytest
from tests.cluster.directories import LONG_MS, S0, S1, run_in_time
from tests.cluster.fake_etcd import FakeEtcd, header, range_of_term

from magnetar_cluster.directory.cluster_directory import (
    ClusterDirectoryUnavailable,
    ClusterDirectoryWentBack,
    LeaseExpired,
)
from magnetar_cluster.etcd.etcd_client import EtcdClient
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd.etcd_settings import EtcdSettings
from magnetar_cluster.etcd_wire import kv_pb2 as kv
from magnetar_cluster.etcd_wire import rpc_pb2 as pb

LEASE = 5
Test = Callable[[EtcdDirectory, FakeEtcd], Awaitable[None]]


def run(test: Test, *, patient: bool, silence_ms_max: int = 20_000) -> None:
    """Run a test with a client that waits for an answer, or for a refusal."""

    async def running() -> None:
        etcd = FakeEtcd()
        await etcd.start()
        directory = EtcdDirectory(
            EtcdSettings(
                endpoints=(etcd.endpoint,),
                endpoint_timeout_ms=5_000 if patient else 1_000,
                call_timeout_ms=20_000 if patient else 3_000,
                silence_ms_max=silence_ms_max,
            ),
            "c",
        )
        try:
            await test(directory, etcd)
        finally:
            await directory.close()
            await etcd.stop()

    run_in_time(running())


def answered(ttl_s: int, term: int = 1, lease: int = LEASE) -> pb.LeaseKeepAliveResponse:
    return pb.LeaseKeepAliveResponse(header=header(term), ID=lease, TTL=ttl_s)


def in_turn(*answers: pb.LeaseKeepAliveResponse) -> Callable[[object], pb.LeaseKeepAliveResponse]:
    """The last one again and again."""

    def following() -> Iterator[pb.LeaseKeepAliveResponse]:
        yield from answers
        while True:
            yield answers[-1]

    rest = following()
    return lambda request: next(rest)


def test_a_renewal_by_a_leader_of_the_past_is_none() -> None:
    """It slept, and its successor may have ended the lease."""

    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_keep_alive = lambda request: answered(3, term=1)
        etcd.on_range = lambda request: range_of_term(2)
        with pytest.raises(ClusterDirectoryUnavailable, match="its leader changed"):
            await directory.renew(LEASE)

    run(test, patient=False)


def test_a_renewal_is_repeated_when_the_leader_changed() -> None:
    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_keep_alive = in_turn(answered(3, term=1), answered(3, term=2))
        etcd.on_range = lambda request: range_of_term(2)
        await directory.renew(LEASE)

    run(test, patient=True)


def test_a_lease_that_a_new_leader_does_not_know_yet_has_not_ended() -> None:
    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_range = lambda request: range_of_term(2)
        etcd.on_keep_alive = in_turn(answered(0, term=1), answered(0, term=2), answered(3, term=2))
        await directory.renew(LEASE)

    run(test, patient=True)


def test_a_lease_that_the_leader_does_not_know_has_ended() -> None:
    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_range = lambda request: range_of_term(1)
        etcd.on_keep_alive = in_turn(answered(0))
        with pytest.raises(LeaseExpired):
            await directory.renew(LEASE)

    run(test, patient=True)


def test_an_answer_about_another_lease_is_none() -> None:
    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_range = lambda request: range_of_term(1)
        etcd.on_keep_alive = in_turn(answered(3, lease=LEASE + 1))
        with pytest.raises(ClusterDirectoryUnavailable):
            await directory.renew(LEASE)

    run(test, patient=False)


def test_a_renewal_without_a_majority_is_none() -> None:
    """A leader that was cut off renews leases; only a read shows that nobody follows it."""

    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_keep_alive = in_turn(answered(3))
        with pytest.raises(ClusterDirectoryUnavailable, match="no answer in time"):
            await directory.renew(LEASE)

    run(test, patient=False)


@pytest.mark.parametrize(
    "answer",
    [
        pb.LeaseGrantResponse(header=header(), ID=LEASE, TTL=2),
        pb.LeaseGrantResponse(header=header(), ID=0, TTL=3),
        pb.LeaseGrantResponse(header=header(), ID=LEASE, TTL=3, error="too many"),
    ],
)
def test_a_lease_shorter_than_was_asked_for_is_none(answer: pb.LeaseGrantResponse) -> None:
    """Its owner would speak when it has ended."""

    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        asked: list[int] = []

        def grant(request: pb.LeaseGrantRequest) -> pb.LeaseGrantResponse:
            asked.append(request.TTL)
            return answer

        etcd.on_grant = grant
        with pytest.raises(ClusterDirectoryUnavailable, match="granted no lease of 3 s"):
            await directory.grant(2_001)
        assert set(asked) == {3}

    run(test, patient=True)


def test_a_transaction_that_neither_wrote_nor_read_gives_no_ownership() -> None:
    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_txn = lambda request: pb.TxnResponse(header=header())
        assert await directory.claim(LEASE, S0, "a") is None

    run(test, patient=True)


def pinned(revision: int, member: str = "a") -> kv.Event:
    row = kv.KeyValue(
        key=b"/magnetar/c/pins/broker/0",
        value=member.encode(),
        create_revision=revision,
        mod_revision=revision,
        version=1,
    )
    return kv.Event(type=kv.Event.PUT, kv=row)


CREATED = pb.WatchResponse(header=header(), created=True)


@pytest.mark.parametrize(
    ("responses", "reason"),
    [
        ([CREATED], "silent"),
        ([CREATED, pb.WatchResponse(header=header(), compact_revision=20)], "forgotten"),
        (
            [CREATED, pb.WatchResponse(header=header(), canceled=True, cancel_reason="tired")],
            "tire",
        ),
        ([CREATED, pb.WatchResponse(header=header(), events=[pinned(10)])], "twice"),
        ([CREATED, pb.WatchResponse(header=header(), events=[pinned(12), pinned(11)])], "no order"),
    ],
)
def test_a_watch_that_is_not_what_it_should_be_breaks(
    responses: list[pb.WatchResponse], reason: str
) -> None:
    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_range = lambda request: pb.RangeResponse(header=header(revision=10))
        etcd.watch_responses = responses
        views = directory.watch()
        assert (await anext(views)).revision == 10
        with pytest.raises(ClusterDirectoryUnavailable, match=reason):
            await anext(views)

    run(test, patient=True, silence_ms_max=300 if reason == "silent" else 20_000)


@pytest.mark.parametrize("responses", [[], [pb.WatchResponse(header=header())]])
def test_a_watch_that_does_not_begin(responses: list[pb.WatchResponse]) -> None:
    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_range = lambda request: pb.RangeResponse(header=header(revision=10))
        etcd.watch_responses = responses
        with pytest.raises(ClusterDirectoryUnavailable, match="does not answer within"):
            await anext(directory.watch())

    run(test, patient=False)


def test_the_revision_of_a_view_is_that_of_the_last_change_in_it() -> None:
    """The header's revision may be ahead of what the watch has told."""

    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_range = lambda request: pb.RangeResponse(header=header(revision=10))
        etcd.watch_responses = [
            CREATED,
            pb.WatchResponse(header=header(revision=50)),
            pb.WatchResponse(header=header(revision=50), events=[pinned(12)]),
        ]
        views = directory.watch()
        await anext(views)
        view = await anext(views)
        assert (view.revision, view.pins) == (12, {S0: "a"})

    run(test, patient=True)


def test_etcd_went_back_to_an_earlier_state() -> None:
    """As when it was restored from a backup: epochs would be given twice."""

    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_range = lambda request: pb.RangeResponse(header=header(revision=10))
        etcd.watch_responses = [CREATED, pb.WatchResponse(header=header(), events=[pinned(12)])]
        views = directory.watch()
        await anext(views)
        await anext(views)
        await views.aclose()
        etcd.on_range = lambda request: pb.RangeResponse(header=header(revision=11))
        with pytest.raises(ClusterDirectoryWentBack, match="went back from revision 12 to 11"):
            await anext(directory.watch())
        # It stays so, whatever etcd says later.
        etcd.on_range = lambda request: pb.RangeResponse(header=header(revision=20))
        with pytest.raises(ClusterDirectoryWentBack, match="start all servers"):
            await directory.format(None)

    run(test, patient=True)


@pytest.mark.parametrize("question", ["renewal", "claim", "format"])
def test_each_answer_shows_that_etcd_went_back(question: str) -> None:
    """A lease that was in the backup is renewed: nothing else may tell its member."""

    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_range = lambda request: pb.RangeResponse(header=header(revision=12))
        etcd.on_keep_alive = lambda request: pb.LeaseKeepAliveResponse(
            header=header(), ID=request.ID, TTL=3
        )
        etcd.on_txn = lambda request: pb.TxnResponse(header=header(revision=11), succeeded=True)
        await directory.renew(LEASE)
        etcd.on_range = lambda request: pb.RangeResponse(header=header(revision=11))
        asked: dict[str, Awaitable[object]] = {
            "renewal": directory.renew(LEASE),
            "claim": directory.claim(LEASE, S1, "a"),
            "format": directory.format(None),
        }
        with pytest.raises(ClusterDirectoryWentBack):
            await asked.pop(question)
        # Whoever asks later hears it, too.
        for one in asked.values():
            with pytest.raises(ClusterDirectoryWentBack):
                await one

    run(test, patient=True)


def test_endpoints_that_lag_behind_have_not_gone_back() -> None:
    """Grants and renewals are answered with the revision that the endpoint knows by then."""

    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_range = lambda request: pb.RangeResponse(header=header(revision=12))
        etcd.on_grant = lambda request: pb.LeaseGrantResponse(
            header=header(revision=3), ID=LEASE, TTL=request.TTL
        )
        etcd.on_keep_alive = lambda request: pb.LeaseKeepAliveResponse(
            header=header(revision=3), ID=request.ID, TTL=3
        )
        await directory.format(None)
        assert await directory.grant(LONG_MS) == LEASE
        await directory.renew(LEASE)
        await directory.renew(LEASE)

    run(test, patient=True)


def test_an_endpoint_of_another_etcd_cluster_is_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is asked many times a second, and complained of when it says something new."""

    async def test(_directory: EtcdDirectory, _etcd: FakeEtcd) -> None:
        client = EtcdClient(EtcdSettings(endpoints=("a:1", "b:1")))
        first, second = client._endpoints
        known = pb.RangeResponse(header=header())
        other = pb.RangeResponse(header=pb.ResponseHeader(cluster_id=78))
        client._check(first, known)
        for _ in range(3):
            with pytest.raises(Exception, match="it belongs to another etcd cluster"):
                client._check(second, other)
        assert len(caplog.records) == 1
        client._check(second, known)
        with pytest.raises(Exception, match="it belongs to another etcd cluster"):
            client._check(second, other)
        assert len(caplog.records) == 2
        await client.close()

    with caplog.at_level(logging.ERROR):
        run(test, patient=False)
    assert "Name endpoints of one etcd cluster only" in caplog.text


def test_the_only_endpoint_belongs_to_another_etcd_cluster() -> None:
    """etcd was restored with another token, and nobody else could say what was known before."""

    async def test(directory: EtcdDirectory, etcd: FakeEtcd) -> None:
        etcd.on_grant = lambda request: pb.LeaseGrantResponse(
            header=header(), ID=LEASE, TTL=request.TTL
        )
        assert await directory.grant(LONG_MS) == LEASE
        etcd.on_txn = lambda request: pb.TxnResponse(
            header=pb.ResponseHeader(cluster_id=78), succeeded=True
        )
        with pytest.raises(
            ClusterDirectoryWentBack, match="1 of its 1 endpoints belong to another"
        ):
            await directory.claim(LEASE, S1, "a")

    run(test, patient=True)


def test_most_endpoints_belong_to_another_etcd_cluster() -> None:
    """One may be named by mistake; where most are, what was known before has no majority."""

    async def test(_directory: EtcdDirectory, _etcd: FakeEtcd) -> None:
        client = EtcdClient(EtcdSettings(endpoints=("a:1", "b:1", "c:1")))
        first, second, third = client._endpoints
        known = pb.RangeResponse(header=header())
        other = pb.RangeResponse(header=pb.ResponseHeader(cluster_id=78))
        another = pb.RangeResponse(header=pb.ResponseHeader(cluster_id=79))
        client._check(first, known)
        for endpoint, answer in ((second, other), (third, another), (second, other)):
            with pytest.raises(Exception, match="it belongs to another etcd cluster"):
                client._check(endpoint, answer)
        # The third one belongs to the known cluster after all.
        client._check(third, known)
        with pytest.raises(Exception, match="it belongs to another etcd cluster"):
            client._check(second, other)
        with pytest.raises(
            ClusterDirectoryWentBack, match="2 of its 3 endpoints belong to another"
        ):
            client._check(third, other)
        with pytest.raises(ClusterDirectoryWentBack):
            await client.range(pb.RangeRequest(key=b"a"))
        await client.close()

    run(test, patient=False)


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT]
)
@pytest.mark.parametrize("new_one_counts", [True, False])
def test_a_token_that_is_refused_is_renewed_once_in_a_call(
    code: grpc.StatusCode, new_one_counts: bool
) -> None:
    """etcd has one status for a token that is older than a change of roles and for bad requests."""
    shown: list[str] = []

    async def test() -> None:
        client = EtcdClient(
            EtcdSettings(endpoints=("127.0.0.1:1",), endpoint_timeout_ms=20, call_timeout_ms=100)
        )
        client._token = "old"

        async def attempt(endpoint: object) -> str:
            client._token = client._token or "new"
            shown.append(client._token)
            if client._token == "old" or not new_one_counts:
                nothing = grpc.aio.Metadata()
                raise grpc.aio.AioRpcError(code, nothing, nothing, details="refused")
            return "done"

        try:
            if new_one_counts:
                assert await client._somewhere(attempt) == "done"
            else:
                with pytest.raises(ClusterDirectoryUnavailable, match="refused"):
                    await client._somewhere(attempt)
        finally:
            await client.close()

    run_in_time(test())
    assert shown[:2] == ["old", "new"]
    assert set(shown[2:]) <= {"new"}


def test_a_call_goes_on_when_another_one_has_found_new_files() -> None:
    """Both used the connection, which is made anew."""

    async def test() -> None:
        etcd = FakeEtcd()
        await etcd.start()
        former = EtcdSettings(
            endpoints=(etcd.endpoint,),
            endpoint_timeout_ms=5_000,
            call_timeout_ms=20_000,
            read_again=lambda: replace(former, silence_ms_max=1_000),
        )
        client = EtcdClient(former)

        def deny(request: pb.LeaseGrantRequest) -> pb.LeaseGrantResponse:
            etcd.on_range = lambda request: range_of_term(1)
            etcd.on_grant = lambda request: pb.LeaseGrantResponse(header=header(), ID=LEASE)
            raise ValueError("as with former certificates")

        etcd.on_grant = deny
        # The first one is under way when the second one is denied.
        read, lease = await asyncio.gather(client.range(pb.RangeRequest(key=b"k")), client.grant(1))
        assert (read.header.raft_term, lease.ID) == (1, LEASE)
        await client.close()
        await etcd.stop()

    run_in_time(test())


def test_files_that_cannot_be_used_are_complained_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each attempt reads them, and many fail while etcd is away."""
    reasons = iter(["no PEM", "no PEM", "no PEM", "no key"])

    def damaged() -> EtcdSettings:
        raise ValueError(next(reasons, "no PEM"))

    async def test() -> None:
        etcd = FakeEtcd()
        await etcd.start()
        client = EtcdClient(
            EtcdSettings(
                endpoints=(etcd.endpoint,),
                endpoint_timeout_ms=5_000,
                call_timeout_ms=20_000,
                read_again=damaged,
            )
        )
        denials = iter(range(5))

        def deny(request: pb.LeaseGrantRequest) -> pb.LeaseGrantResponse:
            if next(denials, None) is None:
                return pb.LeaseGrantResponse(header=header(), ID=LEASE)
            raise ValueError("as with former certificates")

        etcd.on_grant = deny
        await client.grant(1)
        await client.close()
        await etcd.stop()

    with caplog.at_level(logging.WARNING, "magnetar_cluster"):
        run_in_time(test())
    said = [one.message.rpartition(": ")[2] for one in caplog.records if "files" in one.message]
    assert said == ["no PEM", "no key", "no PEM"]
