"""Servers that ask for certificates, tokens and proofs, and what their clients show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.certificates import Authority
from tests.cli.running import Standalone, running_standalone
from tests.proof_keys import write_keys
from tests.tokens import Maker, jwks

import magnetar
from magnetar import Client, TlsFiles

AUDIENCE = "magnetar"


@dataclass
class Secured:
    """Servers with mutual TLS and tokens, and what their clients need."""

    directory: Path
    authority: Authority
    maker: Maker
    standalone: Standalone

    @property
    def address(self) -> str:
        return self.standalone.environ["MAGNETAR_BROKER"]

    def token(self, name: str, **claims: Any) -> str:
        return self.maker.token(name, aud=AUDIENCE, **claims)

    def tls(self, name: str = "machine") -> TlsFiles:
        pair = self.authority.sign(name)
        return TlsFiles(
            ca_file=self.authority.ca_file,
            certificate_file=pair.certificate_file,
            key_file=pair.key_file,
        )

    async def connect(self) -> Client:
        return await magnetar.connect(self.address, tls=self.tls(), token=self.token("alice"))

    def console_options(self, token: Path) -> tuple[str, ...]:
        """What the command line is told of TLS and of the file with its token."""
        tls = self.tls("console")
        return (
            *("--tls-ca-file", tls.ca_file),
            *("--tls-certificate-file", tls.certificate_file, "--tls-key-file", tls.key_file),
            *("--token-file", str(token)),
        )

    def spark_options(self, tls: TlsFiles, token: Path) -> dict[str, str]:
        """What Spark's source and sink are told of the servers and of the file with a token."""
        return {
            "magnetar.bootstrap.servers": self.address,
            "magnetar.tls.ca.file": tls.ca_file,
            "magnetar.tls.certificate.file": tls.certificate_file,
            "magnetar.tls.key.file": tls.key_file,
            "magnetar.token.file": str(token),
        }

    def revoke(self, line: str) -> None:
        part = self.directory / "revoked.part"
        part.write_text((self.directory / "revoked").read_text() + line + "\n")
        part.replace(self.directory / "revoked")


@contextmanager
def secured_servers(directory: Path) -> Iterator[Secured]:
    """Two brokers and a coordinator, whose files lie in a directory."""
    authority, maker = Authority(directory / "authority"), Maker()
    server = authority.sign("server")
    (directory / "keys.json").write_text(jwks(maker))
    (directory / "revoked").write_text("")
    (directory / "server.token").write_text(maker.token("server", aud=AUDIENCE) + "\n")
    settings = {
        "tls_certificate_file": server.certificate_file,
        "tls_key_file": server.key_file,
        "tls_ca_file": authority.ca_file,
        "tls_client_ca_file": authority.ca_file,
        "token_keys_file": str(directory / "keys.json"),
        "token_audience": AUDIENCE,
        "token_file": str(directory / "server.token"),
        "revocations_file": str(directory / "revoked"),
        "txn_proof_keys_file": write_keys(directory / "proof.keys", "first"),
    }
    section = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    config = directory / "magnetar.toml"
    config.write_text(
        f"[broker]\n{section}\n[coordinator]\n{section}two_phase_commit_enabled = true\n"
    )
    with running_standalone(directory, "--config", str(config), "--brokers", "2") as standalone:
        yield Secured(directory, authority, maker, standalone)
