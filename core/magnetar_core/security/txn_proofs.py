"""Proofs that a principal may write in a transaction, and the keys that make and check them. Pure.

TxnIDs are counted, so that to know one proves nothing. A proof is a keyed hash of a TxnID and the
principal's name. Coordinators make it, brokers check it, and clients carry it on without looking.

A key file has a line `ID KEY` for each key. The first key signs, and all of them check.
Source: docs/design/0011-security.md, Possession of a TxnID at brokers.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from dataclasses import dataclass, field

from magnetar_core.access.principal import Principal
from magnetar_core.ids import TxnID

# A proof is so many bytes of the hash, and then the key's id.
MAC_BYTES = 16
KEYS_MAX = 16
KEY_BYTES_MIN, KEY_BYTES_MAX = 32, 64

_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,32}")
# Nothing else that is ever signed with these keys begins so.
_PURPOSE = b"magnetar transaction proof 1\0"


@dataclass(frozen=True, slots=True)
class ProofKeys:
    """The keys of a cluster's servers.

    Attributes:
        keys: secrets by id; the first signs. Never shown.
    """

    keys: dict[str, bytes] = field(repr=False)

    @classmethod
    def parse(cls, content: bytes) -> ProofKeys:
        """Read a key file's content.

        Raises:
            ValueError: a line is not a key, or there is no key, or there are too many. The text
                does not quote the keys.
        """
        keys: dict[str, bytes] = {}
        for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or not _KEY_ID.fullmatch(words[0]):
                raise ValueError(
                    f"line {number} is not `ID KEY`; an id has 32 letters, digits, dots, dashes or"
                    " underscores at most"
                )
            if words[0] in keys:
                raise ValueError(f"line {number}: there is another key {words[0]!r}")
            keys[words[0]] = _secret(words[1], number)
        if not keys:
            raise ValueError("it has no key: write `ID KEY`, a key as `openssl rand -base64 32`")
        if len(keys) > KEYS_MAX:
            raise ValueError(f"it has more than {KEYS_MAX} keys: remove those out of use")
        return cls(keys)

    def proof_of(self, txn_id: TxnID, principal: Principal) -> bytes:
        """Return the proof that a principal may write in a transaction."""
        key_id = next(iter(self.keys))
        return _mac(self.keys[key_id], txn_id, principal) + key_id.encode()

    def complaint_about(self, proof: bytes, txn_id: TxnID, principal: Principal) -> str | None:
        """Return why a proof is not valid, and what to do; None: it is valid."""
        if not proof:
            return (
                "it carries no proof (txn_proof): begin the transaction anew, with a client that"
                " carries it on, at a coordinator with the same txn_proof_keys_file"
            )
        key_id = proof[MAC_BYTES:].decode(errors="replace")
        key = self.keys.get(key_id)
        if key is None:
            # A client may have made up the id: it is shown only where it could be one.
            named = f" {key_id!r}" if _KEY_ID.fullmatch(key_id) else ""
            return (
                f"the key{named} of its proof is not in this server's txn_proof_keys_file: give all"
                " servers the same file, and begin the transaction anew"
            )
        if not hmac.compare_digest(proof[:MAC_BYTES], _mac(key, txn_id, principal)):
            return (
                "its proof is not for this transaction and this principal: only the principal "
                "that began the transaction may write in it; if it did, give all servers the same"
                " txn_proof_keys_file"
            )
        return None


def _secret(text: str, line: int) -> bytes:
    try:
        secret = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"line {line}: the key is not base64") from None
    if not KEY_BYTES_MIN <= len(secret) <= KEY_BYTES_MAX:
        raise ValueError(
            f"line {line}: a key has from {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, not"
            f" {len(secret)}"
        )
    return secret


def _mac(key: bytes, txn_id: TxnID, principal: Principal) -> bytes:
    # The name comes last, and everything before has a fixed length: no two inputs look the same.
    signed = _PURPOSE + txn_id.to_bytes() + principal.name.encode()
    return hmac.digest(key, signed, "sha256")[:MAC_BYTES]
