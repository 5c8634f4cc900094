"""librdkafka's own tests against a broker: `make judges-kafka`.

The source comes from Debian's archive and is built once, which takes some twenty minutes of a core.
A selection is run, each test in a process of its own. The status is 1 if one fails that should not.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path

from tests.core.ports import free_ports
from tests.system.processes import BROKER, COORDINATOR, Servers

VERSION = "2.0.2"
URL = f"http://deb.debian.org/debian/pool/main/libr/librdkafka/librdkafka_{VERSION}.orig.tar.gz"
SHA256 = "f321bcb1e015a34114c83cf1aa7b99ee260236aab096b85c003170c90a47ca9d"
SECONDS_MAX = 120
# Tests about producers, fetches, offsets, topics and connections; and about groups.
PASSING = (
    *("0001", "0002", "0003", "0004", "0005", "0007", "0008", "0011", "0012", "0013", "0015"),
    *("0017", "0021", "0025", "0028", "0031", "0034", "0035", "0036", "0038", "0039", "0041"),
    *("0043", "0046", "0047", "0048", "0054", "0055", "0057", "0063", "0068", "0070", "0073"),
    *("0074", "0075", "0078", "0079", "0082", "0086", "0088", "0095", "0107", "0110", "0111"),
    "0137",
    # Members of groups, and offsets that they commit.
    *("0014", "0018", "0019", "0026", "0029", "0030", "0033", "0040", "0042", "0049", "0050"),
    *("0051", "0056", "0059", "0061", "0065", "0067", "0076", "0083", "0084", "0085", "0090"),
    *("0093", "0094", "0099", "0100", "0102", "0113", "0114", "0116", "0118", "0122", "0125"),
    *("0130", "0132"),
)
# Tests that are not run, with the reason.
FAILING = {
    **dict.fromkeys(("0044", "0112"), "it needs CreatePartitions, which is not built yet"),
    "0052": "it needs the scripts of a Kafka installation",
    "0092": "it changes the message format of a topic, and there is only one",
    "0081": "it sets configurations of topics that have no effect here",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path(".judges"), help="for the build")
    parser.add_argument("tests", nargs="*", default=PASSING, help="numbers, as 0001")
    asked = parser.parse_args()
    runner = built(asked.directory.resolve())
    (port,) = free_ports(1)
    settings = {
        "MAGNETAR_KAFKA_PORT": str(port),
        "MAGNETAR_KAFKA_AUTO_CREATE_TOPICS": "true",
        "MAGNETAR_KAFKA_TOPIC_PARTITIONS": "4",
    }
    data_dir = asked.directory.resolve() / "data"
    shutil.rmtree(data_dir, ignore_errors=True)
    servers = Servers(data_dir, settings, {BROKER: 1, COORDINATOR: 1})
    failed = []
    with servers.running():
        for number in asked.tests:
            has_passed = run(runner, number, port)
            print(f"{number} {'passed' if has_passed else 'FAILED'}", flush=True)
            if not has_passed:
                failed.append(number)
        servers.stop()
    print(f"librdkafka {VERSION}: {len(asked.tests) - len(failed)} of {len(asked.tests)} passed")
    for number, reason in FAILING.items():
        print(f"{number} left out: {reason}")
    return 1 if failed else 0


def built(directory: Path) -> Path:
    """Return the program of librdkafka's tests, which is made if it is not there."""
    source = directory / f"librdkafka-{VERSION}"
    runner = source / "tests" / "test-runner"
    if runner.exists():
        return runner
    directory.mkdir(exist_ok=True)
    with urllib.request.urlopen(URL, timeout=60) as reply:
        content = reply.read()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise SystemExit(f"{URL} has another content than expected")
    archive = directory / "librdkafka.tar.gz"
    archive.write_bytes(content)
    with tarfile.open(archive) as opened:
        opened.extractall(directory, filter="data")
    for command in (
        ("./configure", "--disable-ssl", "--disable-gssapi", "--disable-curl"),
        ("make", "libs"),
        ("make", "-C", "tests", "build"),
    ):
        subprocess.run(command, cwd=source, check=True)
    return runner


def run(runner: Path, number: str, port: int) -> bool:
    """Run a test; return whether it has passed. Its output is kept in a file beside it."""
    configuration = runner.with_name("test.conf")
    configuration.write_text(f"metadata.broker.list=127.0.0.1:{port}\n")
    source = runner.parent.parent
    environ = {
        **os.environ,
        "TESTS": number,
        "TEST_KAFKA_VERSION": "3.9.0",
        "RDKAFKA_TEST_CONF": str(configuration),
        "LD_LIBRARY_PATH": f"{source / 'src'}:{source / 'src-cpp'}",
    }
    with runner.with_name(f"{number}.out").open("wb") as output:
        try:
            done = subprocess.run(
                (str(runner), "-p1", "-Q"),
                cwd=runner.parent,
                env=environ,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
