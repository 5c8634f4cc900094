"""Kafka's own command-line tools against three brokers: `make judges-kafka-tools`.

Maven fetches the tools. Each is asked for something, and what it prints is looked at. The status is
1 if one says something else than it should.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.kafka_clients.test_clusters import ThreeBrokers

COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
SECONDS_MAX = 120
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
OF_TOPIC = ("--entity-type", "topics", "--entity-name", "t")

# A tool and its arguments, and what it has to print.
STEPS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        (TOPICS, "--create", "--topic", "t", "--partitions", "4", "--replication-factor", "3"),
        ("Created topic t.",),
    ),
    ((TOPICS, "--list"), ("t",)),
    ((TOPICS, "--describe"), ("PartitionCount: 4", "Leader: 1", "Leader: 2", "Leader: 3")),
    ((TOPICS, "--describe", "--unavailable-partitions"), ()),
    ((TOPICS, "--alter", "--topic", "t", "--partitions", "6"), ()),
    ((TOPICS, "--describe", "--topic", "t"), ("PartitionCount: 6",)),
    (
        (CONFIGS, "--alter", *OF_TOPIC, "--add-config", "retention.ms=3600000"),
        ("Completed updating config for topic t",),
    ),
    ((CONFIGS, "--describe", *OF_TOPIC), ("retention.ms=3600000",)),
    (
        (CONFIGS, "--alter", *OF_TOPIC, "--delete-config", "retention.ms"),
        ("Completed updating config for topic t",),
    ),
    (
        (CONFIGS, "--alter", *OF_TOPIC, "--add-config", "segment.bytes=1000000"),
        ("topics do not have the setting segment.bytes",),
    ),
    (
        (CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "2", "--all"),
        ("message.max.bytes=5242880", "num.partitions=1"),
    ),
    (
        ("org.apache.kafka.tools.LogDirsCommand", "--describe"),
        ("from brokers 1,2,3", '"partition":"t-5"'),
    ),
    (("org.apache.kafka.tools.GetOffsetShell", "--topic", "t"), ("t:0:0", "t:5:0")),
    (
        ("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", "DELETIONS"),
        ("partition: t-0\tlow_watermark: 0",),
    ),
    (("org.apache.kafka.tools.ClusterTool", "cluster-id"), ("Cluster ID:",)),
    (("org.apache.kafka.tools.BrokerApiVersionsCommand",), ("CreatePartitions(37)",)),
    ((TOPICS, "--delete", "--topic", "t"), ()),
    ((TOPICS, "--list"), ()),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path(".judges"), help="for the tools")
    directory = parser.parse_args().directory.resolve()
    library = fetched(directory)
    shutil.rmtree(directory / "brokers", ignore_errors=True)
    servers = ThreeBrokers(directory / "brokers")
    deletions = directory / "deletions.json"
    row = {"topic": "t", "partition": 0, "offset": 0}
    deletions.write_text(json.dumps({"partitions": [row], "version": 1}))
    failed = 0
    with servers.running():
        for asked, expected in STEPS:
            arguments = [str(deletions) if one == "DELETIONS" else one for one in asked]
            printed = told_by(library, servers.kafka[0], arguments)
            missing = [text for text in expected if text not in printed]
            if not expected and printed.strip():
                missing = ["nothing"]
            print(f"{' '.join(asked)}: {'passed' if not missing else 'FAILED'}", flush=True)
            if missing:
                failed += 1
                print(f"expected {missing}, and it printed:\n{printed}")
        servers.stop()
    print(f"Kafka's tools: {len(STEPS) - failed} of {len(STEPS)} passed")
    return 1 if failed else 0


def told_by(library: Path, bootstrap: str, arguments: list[str]) -> str:
    """Run a tool, and return its output."""
    tool, *rest = arguments
    done = subprocess.run(
        ["java", "-cp", f"{library}/*", tool, "--bootstrap-server", bootstrap, *rest]
        if tool != "org.apache.kafka.tools.ClusterTool"
        else ["java", "-cp", f"{library}/*", tool, *rest, "--bootstrap-server", bootstrap],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    return done.stdout + done.stderr


def fetched(directory: Path) -> Path:
    """Return the directory with the tools, which are fetched if they are not there."""
    library = directory / "kafka-tools"
    if not library.exists():
        description = Path(__file__).with_suffix(".xml")
        subprocess.run(
            [
                *("mvn", "--batch-mode", "--quiet", "--strict-checksums"),
                *("--file", str(description), COPY, "-DincludeScope=runtime"),
                f"-DoutputDirectory={library}",
            ],
            check=True,
        )
    return library


if __name__ == "__main__":
    sys.exit(main())
