"""Every PromQL expression of deploy/: where it stands, what it asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import promql_parser
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "transactions.json"
CLUSTER_DASHBOARD = DEPLOY / "grafana" / "dashboards" / "cluster.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"


@dataclass(frozen=True)
class Query:
    """An expression, and a legend where it is drawn."""

    place: str
    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Selector:
    """A metric that an expression names, with the labels that it asks about."""

    metric: str
    labels: frozenset[str]


def of_dashboard(path: Path = DASHBOARD) -> Iterator[Query]:
    for panel in json.loads(path.read_text())["panels"]:
        for target in panel.get("targets", ()):
            # Grafana's own variable: at least four times the interval between scrapes.
            expr = target["expr"].replace("$__rate_interval", "30s")
            assert "$" not in expr, "the dashboard has no variables"
            yield Query(panel["title"], expr, target["legendFormat"])


def of_rules(path: Path = ALERTS) -> Iterator[Query]:
    for group in yaml.safe_load(path.read_text())["groups"]:
        for rule in group["rules"]:
            yield Query(rule["alert"], rule["expr"])


def selectors(expr: str) -> list[Selector]:
    found: list[Selector] = []

    def visit(node: object) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            assert node.name is not None, f"no metric is named in {expr}"
            labels = frozenset(one.name for one in node.matchers.matchers)
            found.append(Selector(node.name, labels))

    promql_parser.walk(promql_parser.parse(expr), visit)
    return found


def labels_in_text(text: str) -> set[str]:
    """Return the labels in a text, as {{status}} or {{ $labels.status }}."""
    return set(re.findall(r"\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}", text))
