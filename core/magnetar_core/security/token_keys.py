"""Public keys that check tokens, from a JWKS or from PEM.

A key's kind says which algorithms it is for, whatever a token claims. Keys that sign and check
alike (HMAC) are refused: each server could make tokens, and an RSA key could be taken for such one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from magnetar_core.security.pem_files import BLOCK

RSA_BITS_MIN = 2_048
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVE = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
ALGORITHMS = (*_RSA, *_OF_CURVE.values(), "EdDSA")


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A public key.

    Attributes:
        key_id: the `kid` of tokens that it checks; empty: the file names none.
        algorithms: what it may check.
    """

    key_id: str
    key: Any
    algorithms: Collection[str]


def parse_keys(content: bytes) -> Sequence[TokenKey]:
    """Read a JWKS, or one PEM block after the other.

    Raises:
        ValueError: there is no key, or one that is not public, too short, or of an unknown kind.
    """
    keys = _of_jwks(content) if content.lstrip().startswith(b"{") else _of_pem(content)
    if not keys:
        raise ValueError("there is no public key in it, neither as JWKS nor as PEM")
    named = [key.key_id for key in keys if key.key_id]
    if len(named) != len(set(named)):
        raise ValueError("two keys have the same kid")
    return keys


def _of_jwks(content: bytes) -> Sequence[TokenKey]:
    try:
        listed = json.loads(content)["keys"]
        # Keys for encryption may stand in the same list.
        listed = [one for one in listed if one.get("use", "sig") == "sig"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError("it is not a JWKS") from None
    keys: list[TokenKey] = []
    for one in listed:
        if one.get("kty") == "oct":
            raise ValueError(
                "it has a symmetric key; give the public key of the service that signs tokens"
            )
        if "d" in one:
            raise ValueError("it has a private key; servers need the public one only")
        try:
            key = jwt.PyJWK.from_dict(one).key
        except jwt.PyJWTError as error:
            raise ValueError(f"a key cannot be read: {error}") from None
        fits = _algorithms_of(key)
        if one.get("alg") is not None:
            fits = [alg for alg in fits if alg == one["alg"]]
        keys.append(TokenKey(str(one.get("kid") or ""), key, fits))
    return keys


def _of_pem(content: bytes) -> Sequence[TokenKey]:
    keys: list[TokenKey] = []
    for block in BLOCK.finditer(content):
        if b"PRIVATE" in block[1]:
            raise ValueError("it has a private key; servers need the public one only")
        try:
            key = load_pem_public_key(block[0])
        except UnsupportedAlgorithm as error:
            raise ValueError(f"a key cannot be read: {error}") from None
        keys.append(TokenKey("", key, _algorithms_of(key)))
    return keys


def _algorithms_of(key: Any) -> Sequence[str]:
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < RSA_BITS_MIN:
            raise ValueError(f"an RSA key has fewer than {RSA_BITS_MIN} bits")
        return _RSA
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _OF_CURVE:
        return (_OF_CURVE[key.curve.name],)
    if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return ("EdDSA",)
    raise ValueError("a key is not RSA, EC (P-256, P-384, P-521) or Ed25519")
