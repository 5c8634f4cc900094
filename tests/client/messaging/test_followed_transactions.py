"""The list of transactions that sends come after (order, k), against one that is kept plainly."""

from __future__ import annotations

from random import Random

import pytest

from magnetar.messaging.sending.followed_transactions import (
    FOLLOWED_MAX,
    NOBODY,
    Followed,
    FollowedTransactions,
)
from magnetar_core.ids import TxnID


def txn(counter: int) -> TxnID:
    return TxnID.of(3, 1, counter)


# Each time that a transaction enters the list counts on its own.
Entry = tuple[TxnID, int]


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_was_appended_and_not_forgotten(seed: int) -> None:
    random = Random(seed)
    followed = FollowedTransactions()
    expected: list[Entry] = []
    seen: list[tuple[Followed, list[Entry]]] = [(NOBODY, [])]
    # Few transactions come again and again, or many overflow the list.
    count = random.choice([4, 12, 3 * FOLLOWED_MAX])
    for step in range(600):
        chosen, entries = random.choice(seen[-20:])
        match random.choice(["append", "append", "append", "forget", "settled", "all settled"]):
            case "append":
                one = txn(random.randrange(count))
                followed.append(one)
                expected = [entry for entry in expected if entry[0] != one]
                expected = [*expected, (one, step)][-FOLLOWED_MAX:]
            case "forget":
                if random.random() < 0.2:
                    followed.forget(chosen)
                    expected = [entry for entry in expected if entry not in entries]
            case "settled":
                some = random.sample(entries, random.randrange(len(entries) + 1))
                followed.forget_settled(chosen, [one for one, _ in some])
                expected = [entry for entry in expected if entry not in some]
            case _:
                if random.random() < 0.2:
                    followed.forget_settled(chosen, [one for one, _ in entries])
                    expected = [entry for entry in expected if entry not in entries]
        followed.check()
        now = followed.now()
        assert list(now.txn_ids) == [one for one, _ in expected]
        assert len(followed) == len(expected)
        if random.random() < 0.5:
            seen.append((now, expected))


def test_a_list_that_was_seen_stays_as_it_was() -> None:
    """All sends of a transaction name the same, whatever ends meanwhile."""
    followed = FollowedTransactions()
    followed.append(txn(1))
    before = followed.now()
    followed.append(txn(2))
    followed.forget(before)
    assert before.txn_ids == (txn(1),)
    assert followed.now().txn_ids == (txn(2),)


def test_sends_between_two_changes_share_the_list() -> None:
    followed = FollowedTransactions()
    assert followed.now() is NOBODY
    for counter in range(3):
        followed.append(txn(counter))
    now = followed.now()
    followed.forget(NOBODY)
    followed.forget_settled(now, [txn(7)])
    assert followed.now() is now
