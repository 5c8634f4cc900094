"""Tokens for tests: makers with a key of their own, as their JWKS tells it."""

from __future__ import annotations

import json
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from magnetar_core.clock import SystemClock


class Maker:
    """Signs tokens with a key."""

    def __init__(self, key_id: str = "first") -> None:
        self.key_id = key_id
        self.key = ec.generate_private_key(ec.SECP256R1())

    @property
    def public_pem(self) -> bytes:
        found: bytes = self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return found

    @property
    def jwk(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        return told | {"kid": self.key_id, "use": "sig", "alg": "ES256"}

    def token(self, name: str = "alice", *, lasts_s: float = 600, **claims: Any) -> str:
        """Sign a token; a claim of None is left out."""
        now_s = SystemClock().wall_ms() / 1_000
        told = {"sub": name, "exp": int(now_s + lasts_s)} | claims
        told = {key: value for key, value in told.items() if value is not None}
        signed: str = jwt.encode(told, self.key, algorithm="ES256", headers={"kid": self.key_id})
        return signed


def jwks(*makers: Maker) -> str:
    return json.dumps({"keys": [one.jwk for one in makers]})
