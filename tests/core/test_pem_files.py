"""Files as people have them: with comments in any encoding, and with a byte order mark."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.certificates import Authority

from magnetar_core.config import InvalidConfig
from magnetar_core.membership.membership import from_file
from magnetar_core.process.settings import Sources
from magnetar_core.security.pem_files import read, read_authorities, read_pair

MARK = b"\xef\xbb\xbf"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def count(pem: bytes) -> int:
    """How many certificates OpenSSL finds, which is what gRPC has."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pem.decode("ascii"))
    return len(context.get_ca_certs())


@pytest.mark.parametrize(
    "bundle",
    [
        b"%s",
        b"\xef\xbb\xbf%s",
        "Bag Attributes\n  friendlyName: größe\n".encode() + b"%s",
        "größe\n".encode("latin-1") + b"%s",
        b'%s\n# Label: "NetLock Arany (Class Gold) F\xc5\x91tan\xc3\xbas\xc3\xadtv\xc3\xa1ny"\n',
    ],
)
def test_authorities_may_have_any_text_around_them(
    authority: Authority, tmp_path: Path, bundle: bytes
) -> None:
    """It ended in a TypeError, called a bug."""
    other = Path(Authority(tmp_path / "other", "other").ca_file).read_bytes()
    own = Path(authority.ca_file).read_bytes()
    for line_end in (b"\n", b"\r\n"):
        file = tmp_path / "bundle.pem"
        file.write_bytes((bundle % own + b"\n" + other).replace(b"\n", line_end))
        assert count(read_authorities(str(file))) == 2


@pytest.mark.parametrize("content", [b"", b"text", "größe".encode(), b"key", b"damaged"])
def test_what_is_no_authority_is_refused_in_words(
    authority: Authority, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "ca.pem"
    if content == b"key":
        content = Path(authority.sign("alice").key_file).read_bytes()
    if content == b"damaged":
        content = Path(authority.ca_file).read_bytes().replace(b"M", b"\xc3\xa4", 1)
    file.write_bytes(content)
    with pytest.raises(InvalidConfig, match=r"ca\.pem has no certificates of authorities"):
        read_authorities(str(file))


def test_a_certificate_with_a_byte_order_mark_is_refused_by_name(authority: Authority) -> None:
    pair = authority.sign("alice")
    certificate = Path(pair.certificate_file)
    certificate.write_bytes("Subject: größe\n".encode() + certificate.read_bytes())
    assert read_pair(pair.certificate_file, pair.key_file)
    certificate.write_bytes(MARK + certificate.read_bytes())
    with pytest.raises(InvalidConfig, match=f"{certificate.name} begins with a byte order mark"):
        read_pair(pair.certificate_file, pair.key_file)


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(MARK + b"token\n")
    assert read(str(file)) == b"token\n"
    assert read(str(file), 6) == b"token\n"
    assert len(read(str(file), 4)) > 4
    file.write_bytes(MARK + "[broker]\nname = 'größe'\n".encode())
    assert Sources.load({}, ["broker"], file).sections == {"broker": {"name": "größe"}}
    file.write_bytes(MARK + b"cluster_id = 'c'\n")
    with pytest.raises(InvalidConfig, match="broker"):
        from_file(file)
