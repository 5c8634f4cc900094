"""Plans of faults: the same for a seed, with all kinds, and never two on a service at once."""

from __future__ import annotations

import itertools

import pytest
from tests.namespaces.faults import JUMP, KINDS, NO_ETCD, NO_OBJECTS, SLOW_OBJECTS, Fault, plan
from tests.namespaces.services import PROGRAMS, read_services

SERVERS = ("broker-a", "broker-b", "broker-c", "coordinator-a", "coordinator-b")
ETCD = ("etcd-0", "etcd-1", "etcd-2")
SEEDS = range(50)


def planned(seed: int, seconds: float) -> list[Fault]:
    return plan(seed, seconds, SERVERS, ETCD, "object-server")


@pytest.mark.parametrize("seed", SEEDS)
def test_each_kind_comes_and_no_service_is_struck_twice_at_a_time(seed: int) -> None:
    faults = planned(seed, 600.0)
    assert faults == planned(seed, 600.0)
    assert {one.kind for one in faults} == set(KINDS)
    assert 600.0 > max(one.at_s + one.lasts_s for one in faults) > 500.0
    lasting = [one for one in faults if one.kind != JUMP]
    for before, fault in itertools.pairwise(lasting):
        assert before.at_s <= fault.at_s
        if fault.at_s < before.at_s + before.lasts_s:
            assert before.targets[0] != fault.targets[0]
            assert fault.kind not in (NO_OBJECTS, SLOW_OBJECTS, NO_ETCD)


def test_two_minutes_have_nearly_all_kinds() -> None:
    assert all(len({one.kind for one in planned(seed, 120.0)}) >= 9 for seed in SEEDS)


def test_the_services_of_the_compose_file_are_run() -> None:
    services = read_services()
    assert set(services) == {*SERVERS, *ETCD, "object-server"}
    assert {service.image for service in services.values()} == set(PROGRAMS)
    assert services["broker-a"].environ["MAGNETAR_ETCD"] == "etcd-0:2379,etcd-1:2379,etcd-2:2379"
    assert services["object-server"].arguments[1] == "server"
