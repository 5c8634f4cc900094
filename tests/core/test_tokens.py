"""Which tokens count, and what the others are told."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.tokens import Maker, jwks

from magnetar_core.clock import SystemClock
from magnetar_core.config import InvalidConfig
from magnetar_core.errors import AuthenticationFailed
from magnetar_core.security.token_keys import parse_keys
from magnetar_core.security.tokens import TokenVerifier, algorithms_of

NOW_MS = SystemClock().wall_ms()
MAKER = Maker()
DEFAULT = algorithms_of("RS256,ES256,EdDSA")


def verifier(*makers: Maker, **wanted: str) -> TokenVerifier:
    return TokenVerifier(parse_keys(jwks(*(makers or (MAKER,))).encode()), DEFAULT, **wanted)


def forged(header: dict[str, Any], payload: object, signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(payload).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def refusal(found: TokenVerifier, token: str, *, now_ms: int = NOW_MS) -> str:
    with pytest.raises(AuthenticationFailed) as caught:
        found.verify(token, now_ms=now_ms)
    return str(caught.value)


def test_a_good_token_names_its_principal() -> None:
    found = verifier().verify(MAKER.token("alice", jti="7"), now_ms=NOW_MS)
    assert (found.principal.name, found.token_id) == ("alice", "7")
    assert found.expires_at_ms is not None
    assert found.expires_at_ms > NOW_MS


def test_a_token_counts_until_the_millisecond_in_which_it_expires() -> None:
    token = MAKER.token(exp=2_000)
    verifier().verify(token, now_ms=1_999_999)
    assert "expired" in refusal(verifier(), token, now_ms=2_000_000)


def test_a_token_of_the_future_does_not_count_yet() -> None:
    token = MAKER.token(nbf=1_000, exp=2_000)
    assert "not valid yet" in refusal(verifier(), token, now_ms=999_999)
    verifier().verify(token, now_ms=1_000_000)


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": None}, "no claim 'exp'"),
        ({"sub": None}, "no claim 'sub'"),
        ({"name": ""}, "1 to 256 characters"),
        ({"name": "anonymous"}, "reserved"),
        ({"name": "a\nb"}, "characters"),
        ({"name": "a" * 257}, "1 to 256 characters"),
        ({"exp": "soon"}, "damaged|not a time"),
        ({"exp": 1e300}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"nbf": 1e300}, "not a time"),
    ],
)
def test_claims_that_make_no_sense_are_refused(claims: dict[str, Any], said: str) -> None:
    with pytest.raises(AuthenticationFailed, match=said):
        verifier().verify(MAKER.token(**claims), now_ms=NOW_MS)


def test_issuer_and_audience_are_checked_when_they_are_set() -> None:
    wanting = verifier(issuer="us", audience="magnetar")
    wanting.verify(MAKER.token(iss="us", aud=["other", "magnetar"]), now_ms=NOW_MS)
    assert "audience" in refusal(wanting, MAKER.token(iss="us", aud="other"))
    assert "not from 'us'" in refusal(wanting, MAKER.token(iss="them", aud="magnetar"))
    assert "'aud'" in refusal(wanting, MAKER.token(iss="us"))
    assert "'iss'" in refusal(wanting, MAKER.token(aud="magnetar"))
    # Not set: whatever a token says of it is of no interest.
    verifier().verify(MAKER.token(iss="them", aud="other"), now_ms=NOW_MS)


def test_the_key_of_somebody_else_is_of_no_use() -> None:
    stranger = Maker(MAKER.key_id)
    assert "signature" in refusal(verifier(), stranger.token())
    assert "does not have" in refusal(verifier(), Maker("unknown").token())


def test_keys_are_rotated_while_both_are_listed() -> None:
    old, new = Maker("old"), Maker("new")
    both = verifier(old, new)
    for maker in (old, new):
        both.verify(maker.token(), now_ms=NOW_MS)
    assert "does not have" in refusal(verifier(new), old.token())


def test_keys_in_pem_have_no_names_and_are_tried_in_turn() -> None:
    old, new = Maker("old"), Maker("new")
    found = TokenVerifier(parse_keys(old.public_pem + new.public_pem), DEFAULT, audience="a")
    found.verify(new.token(aud="a"), now_ms=NOW_MS)
    found.verify(old.token(aud="a"), now_ms=NOW_MS)
    assert "audience" in refusal(found, old.token(aud="b"))
    assert "signature" in refusal(found, Maker("other").token(aud="a"))


CLAIMS = {"sub": "alice", "exp": NOW_MS // 1_000 + 600}


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "HS256", "", None, 7, ["ES256"]])
def test_a_token_does_not_choose_how_it_is_checked(algorithm: object) -> None:
    token = forged({"alg": algorithm, "typ": "JWT", "kid": MAKER.key_id}, CLAIMS)
    assert "algorithm" in refusal(verifier(), token) or "none" in refusal(verifier(), token)


def test_a_public_key_is_no_secret_to_sign_with() -> None:
    """The key is public: whoever may use it as a secret of HMAC makes tokens."""
    import hashlib
    import hmac

    head = forged({"alg": "HS256", "kid": MAKER.key_id}, CLAIMS).rpartition(".")[0]
    signature = hmac.digest(MAKER.public_pem, head.encode(), hashlib.sha256)
    token = f"{head}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert "algorithm" in refusal(verifier(), token)
    with pytest.raises(InvalidConfig, match="token_algorithms"):
        algorithms_of("ES256,HS256")


def test_an_algorithm_of_another_kind_of_key_is_refused() -> None:
    key = rsa.generate_private_key(65_537, 2_048)
    token = jwt.encode(CLAIMS, key, algorithm="RS256", headers={"kid": MAKER.key_id})
    assert "does not have" in refusal(verifier(), token)


KIDS: tuple[object, ...] = ({}, [], 1, None)


ODD = [
    *("", ".", "..", "a.b.c", "\x00", "[" * 7_000, "{}", forged({"alg": "ES256"}, [1])),
    *(forged({"alg": "ES256", "kid": kid}, CLAIMS) for kid in KIDS),
]


@pytest.mark.parametrize("number", range(len(ODD)))
@pytest.mark.usefixtures("full_stack")
def test_what_is_no_token_is_refused_in_words(number: int) -> None:
    assert refusal(verifier(), ODD[number])


@pytest.mark.usefixtures("full_stack")
def test_a_deeply_nested_header_is_refused_in_words() -> None:
    deep = base64.urlsafe_b64encode(b'{"alg":' + b"[" * 6_000).rstrip(b"=").decode()
    assert refusal(verifier(), f"{deep}.e30.AA")


def test_nothing_of_a_token_is_in_what_is_said() -> None:
    token = Maker("unknown").token("a-secret-name")
    assert "a-secret-name" not in refusal(verifier(), token)
    assert token not in refusal(verifier(), token)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no public key"),
        (b"{}", "JWKS"),
        (b'{"keys": []}', "no public key"),
        (b'{"keys": [7]}', "JWKS"),
        (b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', "symmetric"),
        (b'{"keys": [{"kty": "EC"}]}', "cannot be read"),
        (b"[" * 100_000, "no public key"),
        (b'{"keys": ' + b"[" * 100_000, "JWKS"),
        # Of a kind that nobody knows: the object identifier 1.3.101.122.
        (
            b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2V6AyEA"
            + b"A" * 43
            + b"=\n-----END PUBLIC KEY-----\n",
            "cannot be read",
        ),
    ],
    ids=range(9),
)
@pytest.mark.usefixtures("full_stack")
def test_a_file_without_public_keys_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_keys(content)


def test_private_keys_do_not_belong_on_servers() -> None:
    pem = MAKER.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with pytest.raises(ValueError, match="private"):
        parse_keys(pem)
    with pytest.raises(ValueError, match="private"):
        parse_keys(json.dumps({"keys": [MAKER.jwk | {"d": "AAAA"}]}).encode())


def test_weak_keys_and_names_that_come_twice_are_refused() -> None:
    weak = rsa.generate_private_key(65_537, 1_024).public_key()
    pem = weak.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    with pytest.raises(ValueError, match="bits"):
        parse_keys(pem)
    with pytest.raises(ValueError, match="same kid"):
        parse_keys(jwks(Maker("one"), Maker("one")).encode())
    odd = ec.generate_private_key(ec.SECP256K1()).public_key()
    pem = odd.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    with pytest.raises(ValueError, match="is not RSA"):
        parse_keys(pem)
