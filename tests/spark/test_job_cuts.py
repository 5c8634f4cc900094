"""docs/pipeline.md: which cuts a job takes, and what it finds below their ends; without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.spark.cut_world import TOPICS, Bank, changed, with_ends_of

from magnetar import Cut
from magnetar_core.errors import OutOfRange, TopicNotFound
from magnetar_spark.jobs.auditing.audit import taken_now
from magnetar_spark.jobs.auditing.audit_checks import PART, SCANNED
from magnetar_spark.jobs.auditing.audit_source import watch
from magnetar_spark.jobs.failures import JobError
from magnetar_spark.jobs.job_cuts import cut_at, later_than
from magnetar_spark.jobs.offloading.manifest import Manifest
from magnetar_spark.jobs.offloading.offload_goal import Request, continued, goal_at
from magnetar_spark.jobs.offloading.offload_log import OffloadError
from magnetar_spark.planning import Range

pytestmark = pytest.mark.chaos


@pytest.fixture
def bank(shared_address: str) -> Iterator[Bank]:
    with Bank.of_a_test(shared_address) as made:
        yield made


def last_transaction(bank: Bank) -> str:
    """That of the last message of partition 0 of "current"."""
    messages = list(bank.client.read("current", 0))
    return str(messages[-1].txn_id)


def test_below_the_ends_only_later_transactions_are_not_in_the_cut(bank: Bank) -> None:
    bank.transfer()
    early = bank.cut()
    assert later_than(bank.client, early, TOPICS) == frozenset()
    bank.transfer()
    bank.transfer()
    token = with_ends_of(early, bank.cut())
    found = later_than(bank.client, Cut.parse(token), TOPICS)
    assert len(found) == 2
    assert last_transaction(bank) in found
    every = {str(one.txn_id) for part in (0, 1) for one in bank.client.read("current", part)}
    assert len(every - found) == 1
    # What was decided before is in the cut, though it was finished while the cut was taken.
    waited = changed(Cut.parse(token), partitions={"begun_offset": 0})
    assert later_than(bank.client, Cut.parse(waited), TOPICS) == found


def test_a_job_takes_a_cut_that_is_there_as_a_whole(bank: Bank) -> None:
    bank.transfer()
    whole = bank.cut()
    assert cut_at(bank.client, str(whole), []) == whole
    assert cut_at(bank.client, "now", list(TOPICS)).taken.stamp >= whole.taken.stamp
    for token, complaint in (
        ("today", "--at: 'today' is not the token"),
        (str(whole)[:-3], "damaged"),
        (str(bank.client.cut("current")), r"no topic 'savings'.*take one cut of all"),
        (changed(whole, cluster_id="elsewhere"), "of the cluster 'elsewhere'"),
        (changed(whole, topics={"topic_id": 12345}), "was deleted since"),
        (changed(whole, partitions={"ledger_id": 12345}), "was restored, or has lost"),
    ):
        with pytest.raises(JobError, match=complaint):
            cut_at(bank.client, token, TOPICS)


def test_what_a_cut_does_not_have_is_looked_at_and_does_not_count(bank: Bank) -> None:
    """It has an offset, so that there is no gap; its transaction has a part, so it is marked."""
    bank.transfer(1)
    early = bank.cut()
    for _ in range(4):
        bank.transfer()
    cut = Cut.parse(with_ends_of(early, bank.cut()))
    later = later_than(bank.client, cut, TOPICS)
    taken = cut.taken.topic("current")
    place = taken.partitions[0]
    wanted = Range("current", taken.topic_id, 0, 0, place.end_offset)
    rows = list(watch(bank.client, wanted, later))
    assert [row.messages for row in rows if row.kind == SCANNED] == [1]
    assert sorted(row.messages for row in rows if row.kind == PART) == [0, 0, 1]
    assert {row.kind for row in rows} == {SCANNED, PART}
    counted = list(watch(bank.client, wanted))
    assert [row.messages for row in counted if row.kind == SCANNED] == [3]


def test_an_audit_of_everything_goes_on_without_a_topic_that_is_deleted(bank: Bank) -> None:
    """One that was named must be there."""
    bank.transfer()
    listed = dict.fromkeys((*TOPICS, "deleted"), False)
    cut = taken_now(bank.client, listed)
    assert cut is not None
    assert set(cut.topics) == set(listed) == set(TOPICS)
    assert taken_now(bank.client, {"deleted": False}) is None
    with pytest.raises(TopicNotFound):
        taken_now(bank.client, {"current": True, "deleted": True})


def test_messages_that_go_while_an_audit_reads_a_cut_are_an_error(bank: Bank) -> None:
    bank.transfer()
    taken = bank.cut().taken.topic("current")
    wanted = Range("current", taken.topic_id + 1, 0, 0, 1)
    assert all(row.kind == SCANNED for row in watch(bank.client, wanted))
    with pytest.raises(OutOfRange, match="removed since the cut"):
        list(watch(bank.client, wanted, frozenset()))


def test_the_goal_of_an_offload_at_a_cut(bank: Bank) -> None:
    for _ in range(4):
        bank.transfer()
    early = bank.cut()
    bank.transfer()
    late = bank.cut()
    goal = goal_at(bank.client, "current", str(early))
    assert goal.ends() == {0: 2, 1: 2}
    assert goal.unfinished == ()
    torn = goal_at(bank.client, "current", with_ends_of(early, late))
    assert torn.ends() == {0: 3, 1: 2}
    assert torn.unfinished == (last_transaction(bank),)

    request = Request((bank.address,), "current", "here", at=str(early))
    before: Manifest = continued(None, torn, request, "run").with_ends(torn.ends())
    before = before.with_settled((), 1)
    assert continued(before, torn, request, "run").ends() == {0: 3, 1: 2}
    with pytest.raises(OffloadError, match=r"up to 3 already, and the cut ends at 2"):
        continued(before, goal, request, "run")
