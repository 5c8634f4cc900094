"""The plan is carried out: systems in turn, one at a time, with each row in each way."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.peers.conversation import ClientFailed
from benchmarks.peers.drive import measure
from benchmarks.peers.figures import Figure
from benchmarks.peers.processes import NotRunning
from benchmarks.peers.rows import PRODUCE_WAYS
from tests.peers.servers import Machine, Servers, plan

# A round whose variant is the topic, so that it is seen here.
ONE_ROUND = """
say("begin"); say("end"); say_result(variant=told["topic"], arrived=int(told["count"]))
"""
FAILING = "sys.exit(1)"


def figures(found: list[Figure | ClientFailed]) -> list[Figure]:
    return [one for one in found if isinstance(one, Figure)]


def failures(found: list[Figure | ClientFailed]) -> list[str]:
    return [str(one) for one in found if isinstance(one, ClientFailed)]


def test_systems_take_turns_and_are_never_up_together(tmp_path: Path) -> None:
    """Machine.system refuses a second one."""
    machine = Machine()
    systems = [machine.system(name, ONE_ROUND) for name in ("magnetar", "kafka")]
    found = list(measure(plan(tmp_path, repeat=2), systems, ["hanging"]))
    assert machine.started == ["magnetar", "kafka", "magnetar", "kafka"]
    assert [one.system for one in figures(found)] == machine.started
    assert not machine.up
    assert not list(tmp_path.iterdir())


def test_rows_share_a_system_unless_they_leave_something_behind(tmp_path: Path) -> None:
    machine = Machine()
    systems = [machine.system("pulsar", ONE_ROUND)]
    rows = ["transactions", "growth-open", "hanging", "restart"]
    found = list(measure(plan(tmp_path), systems, rows))
    of_a_system = [2 + 1, 1, 1, 1]
    assert len(machine.started) == len(of_a_system)
    assert len(set(machine.directories)) == len(of_a_system)
    assert [one.row for one in figures(found)] == [
        *("transactions", "transactions", "hanging"),
        *("growth-open", "growth-open", "restart"),
    ]


def test_a_cluster_is_not_killed(tmp_path: Path) -> None:
    machine = Machine()
    systems = [machine.system("kafka", ONE_ROUND, durability="cluster")]
    found = figures(list(measure(plan(tmp_path), systems, ["restart", "hanging"])))
    assert [one.row for one in found] == ["hanging"]
    assert list(measure(plan(tmp_path), systems, ["restart"])) == []


def test_each_way_has_a_topic_of_its_own() -> None:
    machine = Machine()
    found = figures(list(measure(plan(), [machine.system("kafka", ONE_ROUND)], ["produce"])))
    ways = [", ".join((language.capitalize(), call)) for language, call in PRODUCE_WAYS["kafka"]]
    assert [one.way for one in found] == ways * 2
    assert len({one.variant for one in found}) == len(found)


def test_a_stream_is_stored_once_and_read_in_each_way() -> None:
    """The topic is the second half of the variant."""
    machine = Machine()
    found = figures(list(measure(plan(), [machine.system("magnetar", ONE_ROUND)], ["consume"])))
    assert len(found) == 2 * 3
    assert {one.variant for one in found} == {"100 B, consume-0", "1024 B, consume-1"}


def test_a_stream_that_was_not_stored_whole_is_not_read() -> None:
    machine = Machine()
    script = """
say("begin"); say("end"); say_result(arrived=int(told["count"]) - 1)
"""
    found = list(measure(plan(), [machine.system("magnetar", script)], ["transform"]))
    (failure,) = failures(found)
    assert failure == (
        "Magnetar, synced: transform, 100 B, filling: 1,999,999 of 2,000,000 messages were stored"
    )
    assert len(found) == 1


def test_the_rest_goes_on_after_a_client_failed() -> None:
    machine = Machine()
    script = """
if told["work"] == "hanging": sys.exit(1)
say("begin"); say("end"); say_result()
"""
    found = list(measure(plan(), [machine.system("kafka", script)], ["hanging", "restart"]))
    assert failures(found) == ["Kafka, synced: hanging, Java: a client ended with status 1"]
    assert [one.row for one in figures(found)] == ["restart"]


def test_nothing_goes_on_after_a_server_ended() -> None:
    """Each client would wait for it for many minutes."""
    machine = Machine()
    system = machine.system("kafka", FAILING, servers=Servers(have_ended=True))
    with pytest.raises(NotRunning, match="it ended"):
        list(measure(plan(), [system], ["hanging", "produce"]))
    assert not machine.up


def test_a_system_is_stopped_when_nobody_wants_more() -> None:
    machine = Machine()
    found = measure(plan(), [machine.system("pulsar", ONE_ROUND)], ["produce"])
    next(found)
    assert machine.up == ["pulsar"]
    found.close()
    assert not machine.up
