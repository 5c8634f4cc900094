"""Settings of a server whose shards change their owner: etcd, and what the cluster is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar_cluster.directory.view import Format
from magnetar_core.config import InvalidConfig, check_numbers, split_address
from magnetar_core.ids import TCID_MAX
from magnetar_core.membership.placement import SHARDS_MAX
from magnetar_core.security.pem_files import read, read_authorities, read_pair

if TYPE_CHECKING:
    from magnetar_cluster.etcd.etcd_settings import EtcdSettings

NEVER_CHANGES = "the numbers of shards are fixed when a cluster is made"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """Settings of a member of a cluster whose shards change their owner.

    Attributes:
        etcd: addresses of etcd's members, HOST:PORT, separated by commas. With etcd, limits of
            memory are for each shard of the server, except memory_bytes, tails_bytes_max and
            store_memory_cache_bytes. Empty: the server keeps its shard, and needs no etcd.
        etcd_ca_file: PEM file of the authorities that check etcd's certificates. Empty: the server
            talks to etcd in plain text, which is for trusted networks only.
        etcd_certificate_file, etcd_key_file: PEM files of a certificate and its key, if etcd asks
            for one; both or neither.
        etcd_user: user of etcd, if it asks for one.
        etcd_password_file: file with the password of that user.
        advertised_address: address where servers and clients reach this server, HOST:PORT. Empty:
            the address where it listens.
        external_address: address where clients outside of the servers' network reach this server,
            HOST:PORT. Empty: they use the same address as servers. With a list of members, the list
            says it.
        broker_shards, coordinator_shards: numbers of shards of a new cluster, for each kind of
            server; they never change. Two to four for each server that you ever expect. Higher: the
            load is spread more evenly, and more servers can share it. Lower: less memory, and fewer
            puts. 0: as the cluster was made.
    """

    etcd: str = ""
    etcd_ca_file: str = ""
    etcd_certificate_file: str = ""
    etcd_key_file: str = ""
    etcd_user: str = ""
    etcd_password_file: str = ""
    advertised_address: str = ""
    external_address: str = ""
    broker_shards: int = 0
    coordinator_shards: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, may_be_zero=("broker_shards", "coordinator_shards"))
        if self.broker_shards > SHARDS_MAX:
            raise InvalidConfig(f"broker_shards must be at most {SHARDS_MAX}")
        if self.coordinator_shards > TCID_MAX + 1:
            raise InvalidConfig(f"coordinator_shards must be at most {TCID_MAX + 1}")
        if bool(self.broker_shards) != bool(self.coordinator_shards):
            raise InvalidConfig("broker_shards and coordinator_shards need each other: give both")
        if bool(self.etcd_certificate_file) != bool(self.etcd_key_file):
            raise InvalidConfig(
                "etcd_certificate_file and etcd_key_file need each other: name both"
            )
        for name in ("advertised_address", "external_address"):
            address = getattr(self, name)
            if address and split_address(address)[1] == 0:
                raise InvalidConfig(f"{name} has port 0; name the port that others reach")

    def etcd_settings(self, lease_duration_ms: int) -> EtcdSettings:
        """Return how etcd is reached, by a server whose lease has this duration.

        Raises:
            InvalidConfig: a file cannot be read, or the settings do not fit together.
        """
        from magnetar_cluster.etcd.etcd_settings import EtcdSettings

        try:
            authorities = read_authorities(self.etcd_ca_file) if self.etcd_ca_file else b""
            certificate, key = b"", b""
            if self.etcd_certificate_file:
                certificate, key = read_pair(self.etcd_certificate_file, self.etcd_key_file)
            password = read(self.etcd_password_file) if self.etcd_password_file else b""
            return EtcdSettings(
                endpoints=tuple(one.strip() for one in self.etcd.split(",") if one.strip()),
                tls=bool(self.etcd_ca_file),
                ca_certificates=authorities,
                certificate=certificate,
                private_key=key,
                user=self.etcd_user,
                password=password.decode().strip(),
                # Two renewals have to fit into the time for which one of them lets a server speak.
                endpoint_timeout_ms=lease_duration_ms // 6,
                call_timeout_ms=lease_duration_ms * 2 // 3,
                silence_ms_max=lease_duration_ms // 2,
                read_again=lambda: self.etcd_settings(lease_duration_ms),
            )
        except ValueError as error:
            raise InvalidConfig(f"etcd: {error}") from error

    @property
    def wanted_format(self) -> Format | None:
        """The numbers of shards that are asked for; None: as the cluster was made."""
        if not self.broker_shards:
            return None
        return Format(broker_shards=self.broker_shards, coordinator_shards=self.coordinator_shards)

    def check_format(self, fixed: Format | None) -> Format:
        """Return the cluster's numbers of shards.

        Raises:
            InvalidConfig: they are not known, or others than this server is told.
        """
        if fixed is None:
            raise InvalidConfig(
                "the cluster is new: set the numbers of its shards with --broker-shards and "
                "--coordinator-shards; {NEVER_CHANGES}"
            )
        if self.wanted_format not in (None, fixed):
            raise InvalidConfig(
                f"the cluster has {fixed.broker_shards} shards of brokers and"
                f" {fixed.coordinator_shards} of coordinators, and {NEVER_CHANGES}: start with"
                f" --broker-shards {fixed.broker_shards} --coordinator-shards"
                f" {fixed.coordinator_shards}, or without both"
            )
        return fixed
