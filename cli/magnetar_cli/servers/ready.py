"""Reports that a server is ready: by a line for people, by a file for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Addresses of a ready server.

    Attributes:
        metrics: empty without an endpoint.
        kafka: where it answers Kafka's clients; empty: nowhere.
        no_kafka: why it does not, although it would have by default; empty: it does, or it was not
            to.
    """

    kind: str
    name: str
    pid: int
    address: str
    metrics: str
    kafka: str = ""
    no_kafka: str = ""

    def line(self) -> str:
        """Return the line for people."""
        text = f"ready: {self.kind} {self.name} at {self.address}"
        if self.kafka:
            text += f", Kafka's clients at {self.kafka}"
        return f"{text}, metrics at {self.metrics}" if self.metrics else text


def write_ready_file(path: Path, content: dict[str, Any]) -> None:
    """Write the file so that readers see all of it or none."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content) + "\n")
    part.replace(path)
