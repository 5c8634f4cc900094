"""franz-go's own test of groups against a broker: `make judges-franz-go`. It needs Go.

Its module comes from Go's proxy, and its tests are built once, which takes some five minutes of a
core. Members of three groups in a row read a topic and write the next one, while others join, leave
and come back. Its variants for Kafka's newer protocol of groups skip themselves.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.core.ports import free_ports
from tests.system.processes import BROKER, COORDINATOR, Servers

VERSION = "v1.22.3"
MODULE = "github.com/twmb/franz-go"
TESTS = "^TestGroupETL$"
RECORDS = "50000"
SECONDS_MAX = 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path(".judges"), help="for the build")
    asked = parser.parse_args()
    if shutil.which("go") is None:
        print("Go is not installed: franz-go's tests are not run")
        return 0
    runner = built(asked.directory.resolve() / f"franz-go-{VERSION}")
    (port,) = free_ports(1)
    data_dir = asked.directory.resolve() / "data"
    shutil.rmtree(data_dir, ignore_errors=True)
    settings = {"MAGNETAR_KAFKA_PORT": str(port)}
    servers = Servers(data_dir, settings, {BROKER: 1, COORDINATOR: 1})
    environ = {
        **os.environ,
        "KGO_SEEDS": f"127.0.0.1:{port}",
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": RECORDS,
        "KGO_TEST_MAX_TOPIC_PARTS": "8",
    }
    with servers.running(), runner.with_suffix(".out").open("wb") as output:
        done = subprocess.run(
            (str(runner), "-test.run", TESTS, "-test.v", "-test.timeout", f"{SECONDS_MAX}s"),
            env=environ,
            cwd=runner.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
        servers.stop()
    lines = runner.with_suffix(".out").read_text(errors="replace").splitlines()
    for line in lines:
        if line.strip().startswith("--- "):
            print(line)
    return done.returncode


def built(directory: Path) -> Path:
    """Return the program of franz-go's tests, which is made if it is not there."""
    runner = directory / "kgo.test"
    if runner.exists():
        return runner
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "go.mod").write_text("module judges\n\ngo 1.24\n")
    package = f"{MODULE}/pkg/kgo"
    (directory / "judges.go").write_text(f'package judges\n\nimport _ "{package}"\n')
    for command in (
        ("go", "get", f"{MODULE}@{VERSION}"),
        ("go", "get", "-t", f"{package}@{VERSION}"),
        ("go", "test", "-c", "-o", str(runner), package),
    ):
        subprocess.run(command, cwd=directory, check=True)
    return runner


if __name__ == "__main__":
    sys.exit(main())
