"""An object server for experiments: SeaweedFS, with all its parts in one process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from magnetar_cli.cluster.local.outside_server import OutsideServer
from magnetar_cli.cluster.local.programs import object_server_program

PORT_COUNT = 8
BUCKET = "magnetar"
# The server listens on this machine alone. These keep out programs that connect by mistake.
ACCESS_KEY = SECRET_KEY = "experiments"


def object_server(directory: Path, ports: Sequence[int]) -> OutsideServer:
    """Return an object server that keeps its data in a directory, not started yet.

    Args:
        ports: PORT_COUNT of them; the first is the one of S3.
    Raises:
        InvalidConfig: there is no program.
    """
    data = directory / "objects"
    data.mkdir(exist_ok=True)
    identities = directory / "identities.json"
    identities.write_text(
        json.dumps(
            {
                "identities": [
                    {
                        "name": "experiments",
                        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
                        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                    }
                ]
            }
        )
    )
    s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = ports
    command = [
        *(object_server_program(), "-logtostderr=true", "server", f"-dir={data}"),
        *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"),
        *(f"-master.port={master}", f"-master.port.grpc={master_grpc}"),
        *(f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}"),
        *("-filer", f"-filer.port={filer}", f"-filer.port.grpc={filer_grpc}"),
        *("-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}", f"-s3.config={identities}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
        # Small disks will do, and a server that is alone need not wait for others.
        *("-master.volumeSizeLimitMB=256", "-volume.max=0", "-volume.minFreeSpace=1MiB"),
        "-master.electionTimeout=1s",
    ]

    async def is_ready() -> bool:
        return await _stores_objects(s3)

    return OutsideServer(
        "the object server",
        command,
        directory / "object-server.log",
        is_ready,
        # It would take ten seconds to end in order.
        may_be_killed=True,
        clean_up=lambda: remove_sockets(ports),
    )


def sockets(ports: Sequence[int]) -> list[Path]:
    """Return files of a server that lie outside of its directory, where no option moves them."""
    return [one for port in ports for one in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]


def remove_sockets(ports: Sequence[int]) -> None:
    """Remove these files, which a server that is killed leaves behind."""
    for one in sockets(ports):
        one.unlink(missing_ok=True)


def environment(port: int) -> dict[str, str]:
    """Return the variables with which servers find the object server."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }


async def _stores_objects(port: int) -> bool:
    import obstore
    from obstore import exceptions
    from obstore.store import S3Store

    objects = S3Store(
        BUCKET,
        prefix="ready",
        endpoint=f"http://127.0.0.1:{port}",
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    try:
        await obstore.put_async(objects, "ready", b"")
    except exceptions.BaseError:
        return False
    return True
