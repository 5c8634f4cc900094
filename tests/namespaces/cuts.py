"""Tries each way to cut a machine off, with a packet in each direction. For test_network.py."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.namespaces.network import Network

ONE, TWO, THREE = "one", "two", "three"
SEND = """
import socket, sys
socket.socket(type=socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), (sys.argv[1], 5000))
"""
RECEIVE = """
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind(("", 5000))
print("ready", flush=True)
print(s.recv(10).decode(), flush=True)
"""


def arrives(network: Network, sender: str, receiver: str) -> bool:
    """Whether a packet does."""
    with subprocess.Popen(
        network.at(receiver, sys.executable, "-c", RECEIVE), stdout=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "ready\n"
        # What the other machine sends is there at once, or lost: it comes before what the receiver
        # then sends to itself. Whoever may say nothing is told so by the kernel.
        for at, address, text in (
            (sender, socket.gethostbyname(receiver), "packet"),
            (receiver, "127.0.0.1", "nothing"),
        ):
            subprocess.run(
                network.at(at, sys.executable, "-c", SEND, address, text),
                stderr=subprocess.DEVNULL,
                check=False,
            )
        return waiting.stdout.readline() == "packet\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        network = Network(Path(directory), [ONE, TWO, THREE])
        network.start()
        cuts: dict[str, Callable[[], None]] = {
            "before": lambda: None,
            "hears nothing": lambda: network.cut(ONE, hears=False, says=True),
            "says nothing": lambda: network.cut(ONE, hears=True, says=False),
            "cut off": lambda: network.cut(ONE, hears=False, says=False),
            "cut off from another": lambda: network.cut(
                ONE, hears=False, says=False, others=[THREE]
            ),
            "healed": lambda: None,
        }
        for name, cut in cuts.items():
            network.heal(ONE)
            cut()
            went, came = arrives(network, ONE, TWO), arrives(network, TWO, ONE)
            print(f"{name}: out {went}, in {came}")


if __name__ == "__main__":
    main()
