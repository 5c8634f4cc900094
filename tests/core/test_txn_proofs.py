"""A proof counts for one transaction, one principal and one key; and what a key file may have."""

from __future__ import annotations

import base64
import itertools

import pytest
from tests.proof_keys import key_line

from magnetar_core.access.principal import ANONYMOUS, Principal
from magnetar_core.ids import TxnID
from magnetar_core.security.txn_proofs import KEYS_MAX, MAC_BYTES, ProofKeys

ALICE, BOB = Principal("alice"), Principal("bob")
TXN_IDS = (TxnID.of(0, 1, 7), TxnID.of(0, 1, 8), TxnID.of(0, 2, 7), TxnID.of(1, 1, 7))
PRINCIPALS = (ALICE, BOB, ANONYMOUS, Principal("alic"), Principal("alicé"))
SETS = (("old",), ("new", "old"), ("new",), ("old", "new"))


def keys_of(*names: str) -> ProofKeys:
    return ProofKeys.parse("".join(map(key_line, names)).encode())


@pytest.mark.parametrize(("made_with", "checked_with"), list(itertools.product(SETS, SETS)))
def test_the_first_key_signs_and_all_check(
    made_with: tuple[str, ...], checked_with: tuple[str, ...]
) -> None:
    proof = keys_of(*made_with).proof_of(TXN_IDS[0], ALICE)
    complaint = keys_of(*checked_with).complaint_about(proof, TXN_IDS[0], ALICE)
    assert (complaint is None) is (made_with[0] in checked_with)
    if complaint is not None:
        assert made_with[0] in complaint
        assert "txn_proof_keys_file" in complaint


def test_a_proof_is_for_its_transaction_and_principal_alone() -> None:
    keys = keys_of("key")
    made = {
        (txn_id, principal): keys.proof_of(txn_id, principal)
        for txn_id in TXN_IDS
        for principal in PRINCIPALS
    }
    assert len(set(made.values())) == len(made)
    for (key, proof), other in itertools.product(made.items(), made):
        assert (keys.complaint_about(proof, *other) is None) is (key == other)


def test_another_secret_under_the_same_id_makes_other_proofs() -> None:
    proof = keys_of("key").proof_of(TXN_IDS[0], ALICE)
    others = ProofKeys.parse(key_line("key", b"x" * 32).encode())
    complaint = others.complaint_about(proof, TXN_IDS[0], ALICE)
    assert complaint is not None
    assert "same txn_proof_keys_file" in complaint


def test_every_damaged_byte_is_noticed() -> None:
    keys = keys_of("key")
    proof = keys.proof_of(TXN_IDS[0], ALICE)
    assert len(proof) == MAC_BYTES + len("key")
    damaged = [proof[:at] + bytes([proof[at] ^ 1]) + proof[at + 1 :] for at in range(len(proof))]
    shorter = [proof[:size] for size in range(len(proof))]
    for one in (*damaged, *shorter, proof + b"\0", b"\xff" * 40, b"\0" * MAC_BYTES):
        assert keys.complaint_about(one, TXN_IDS[0], ALICE), one


def test_what_a_stranger_writes_is_not_repeated() -> None:
    complaint = keys_of("key").complaint_about(b"m" * MAC_BYTES + b"\n<x>", TXN_IDS[0], ALICE)
    assert complaint is not None
    assert "<x>" not in complaint


def test_without_a_proof_it_says_what_to_do() -> None:
    complaint = keys_of("key").complaint_about(b"", TXN_IDS[0], ALICE)
    assert complaint is not None
    assert "txn_proof_keys_file" in complaint


SECRET = base64.b64encode(b"s" * 32).decode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no key"),
        ("# nothing\n\n", "no key"),
        (f"{SECRET}\n", "line 1 is not"),
        (f"id {SECRET} more\n", "line 1 is not"),
        (f"# first\nä {SECRET}\n", "line 2 is not"),
        (f"{'i' * 33} {SECRET}\n", "line 1 is not"),
        (f"id {SECRET}\nid {SECRET}\n", "line 2: there is another key 'id'"),
        ("id s$cret\n", "line 1: the key is not base64"),
        ("id " + base64.b64encode(b"s" * 31).decode(), "from 32 to 64 bytes, not 31"),
        ("id " + base64.b64encode(b"s" * 65).decode(), "from 32 to 64 bytes, not 65"),
        ("".join(f"k{n} {SECRET}\n" for n in range(KEYS_MAX + 1)), "more than 16 keys"),
    ],
)
def test_what_is_no_key_file(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        ProofKeys.parse(text.encode())
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("size", [32, 64])
def test_sizes_at_the_edge(size: int) -> None:
    lines = "".join(key_line(f"k.{n}_-", b"s" * size) for n in range(KEYS_MAX))
    assert len(ProofKeys.parse(lines.encode()).keys) == KEYS_MAX


def test_keys_are_never_shown() -> None:
    assert "----" not in repr(keys_of("key"))
