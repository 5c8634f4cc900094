"""A network of namespaces: each machine has one of its own, and a bridge joins them.

It has to run inside of `inside()`: namespaces, processes and devices of a run then belong to a
process that begins all others, and the kernel removes them with it, however it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.namespaces.services import ROOT, environment, tool

SUBNET = "10.86.0"
BRIDGE = "switch"
# Below the /run of the run's own.
OWN_VOLUME, OWN_PROGRAM = "/run/volume", "/run/program"
# Over loopback a machine talks to itself, with its own address: it is no part of a cut.
INCOMING, OUTGOING = ("-i", "eth0"), ("-o", "eth0")
TOOLS = ("unshare", "setpriv", "nsenter", "ip", "iptables", "mount")


def inside(*command: str) -> list[str]:
    """The command that runs another one as the first process of new namespaces.

    Whoever started it takes all with it: the kernel kills what is left in a namespace of processes
    when its first one ends, and that one is killed with its parent.
    """
    as_root = () if os.geteuid() == 0 else ("--map-root-user",)
    return [
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", *as_root, "--mount", "--net", "--pid", "--fork", "--mount-proc"),
        *("--kill-child", *command),
    ]


def missing() -> str:
    """Why there can be no such network here; empty: there can. It is tried."""
    if sys.platform != "linux":
        return "only Linux has network namespaces"
    lacking = [name for name in TOOLS if tool(name) is None]
    if lacking:
        return f"these programs are missing: {', '.join(lacking)} (util-linux, iproute2, iptables)"
    done = subprocess.run(
        inside(sys.executable, "-m", "tests.namespaces.network"),
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
    return f"network namespaces cannot be made here (CAP_SYS_ADMIN, CAP_NET_ADMIN): {said}"


def with_own_tmp(volume: Path, command: Sequence[str]) -> list[str]:
    """The command that runs another one with a /tmp of its own, and a directory at OWN_VOLUME.

    The parts of SeaweedFS find each other by sockets there, which are named after ports: those of
    two runs would find those of each other. The program itself may lie below the machine's /tmp.
    """
    script = (
        f"mkdir -p {OWN_VOLUME} && mount --bind {volume} {OWN_VOLUME}"
        f' && touch {OWN_PROGRAM} && mount --bind "$1" {OWN_PROGRAM} && shift'
        f' && mount -t tmpfs none /tmp && exec {OWN_PROGRAM} "$@"'
    )
    return ["unshare", "--mount", "sh", "-c", script, "sh", *command]


def _run(*command: str) -> None:
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


class Network:
    """Machines that reach each other by name.

    Args:
        directory: for the file of names.
    """

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self._addresses = {name: f"{SUBNET}.{10 + at}" for at, name in enumerate(names)}
        self._hosts = directory / "hosts"

    def start(self) -> None:
        # Of the machine's own /run, nothing is seen from here on, and nothing is written to it.
        _run("mount", "-t", "tmpfs", "none", "/run")
        lines = [
            "127.0.0.1 localhost",
            *(f"{address} {name}" for name, address in self._addresses.items()),
        ]
        self._hosts.write_text("\n".join(lines) + "\n")
        _run("mount", "--bind", str(self._hosts), "/etc/hosts")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{SUBNET}.1/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        for at, (name, address) in enumerate(self._addresses.items()):
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", f"port{at}", "type", "veth", "peer", "name", "eth0",
                 "netns", name)  # fmt: skip
            _run("ip", "link", "set", f"port{at}", "master", BRIDGE, "up")
            within = ("ip", "-netns", name)
            _run(*within, "address", "add", f"{address}/24", "dev", "eth0")
            _run(*within, "link", "set", "eth0", "up")
            _run(*within, "link", "set", "lo", "up")

    def at(self, name: str, *command: str) -> list[str]:
        """The command that runs another one on a machine, as the same process."""
        return ["nsenter", f"--net=/run/netns/{name}", *command]

    def cut(self, name: str, *, hears: bool, says: bool, others: Iterable[str] = ()) -> None:
        """Lose packets from now on, silently.

        Args:
            hears, says: what goes on, if not both are lost.
            others: only those from and to these machines; empty: all.
        """
        addresses = [self._addresses[one] for one in others] or [f"{SUBNET}.0/24"]
        for address in addresses:
            if not hears:
                self._iptables(name, "-A", "INPUT", *INCOMING, "-s", address, "-j", "DROP")
            if not says:
                self._iptables(name, "-A", "OUTPUT", *OUTGOING, "-d", address, "-j", "DROP")

    def heal(self, name: str) -> None:
        """Lose nothing any more on a machine."""
        self._iptables(name, "-F")

    def _iptables(self, name: str, *arguments: str) -> None:
        _run(*self.at(name, "iptables", "-w", *arguments))


def _try() -> None:
    """Do once all that a run needs, and say what does not work."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        network = Network(Path(directory), ["one", "two"])
        try:
            network.start()
            network.cut("one", hears=False, says=False, others=["two"])
            _run(*network.at("one", "ip", "address"))
            network.heal("one")
        except (OSError, RuntimeError) as error:
            sys.exit(str(error))


if __name__ == "__main__":
    _try()
