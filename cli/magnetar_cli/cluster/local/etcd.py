"""An etcd of one member, for experiments."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path

from magnetar_cli.cluster.local.outside_server import OutsideServer
from magnetar_cli.cluster.local.programs import etcd_program

ANSWER_S_MAX = 2.0


def etcd(directory: Path, port: int, peer_port: int) -> OutsideServer:
    """Return an etcd that keeps its data in a directory, not started yet.

    Raises:
        InvalidConfig: there is no program.
    """
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    command = [
        *(etcd_program(), "--name", "etcd", "--data-dir", str(directory / "etcd")),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"etcd={peer}", "--log-level", "warn"),
        *("--auto-compaction-retention", "1h"),
    ]

    async def is_ready() -> bool:
        return await asyncio.to_thread(_is_healthy, f"{client}/health")

    return OutsideServer(
        "etcd",
        command,
        directory / "etcd.log",
        is_ready,
        # Processes are killed here, and machines are not: without it, a program that writes much to
        # the same disk lets leases expire. As a variable, since early versions refuse the option.
        variables={"ETCD_UNSAFE_NO_FSYNC": "true"},
    )


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S_MAX) as reply:
            return bool(json.load(reply).get("health") == "true")
    except (OSError, ValueError):
        return False
