"""Rules and dashboard: what they name is there, and rules say what they should."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from collections import defaultdict

import metrics_page
import promql_parser
import pytest
import yaml
from prometheus_client import Histogram
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.running import running_standalone
from tests.deploy.queries import (
    ALERTS,
    CLUSTER_DASHBOARD,
    DEPLOY,
    Query,
    labels_in_text,
    of_dashboard,
    of_rules,
    selectors,
)

from magnetar_cli.servers.host_metrics import HOST_METRICS

# What Prometheus itself adds to each series.
TARGET_LABELS = {"job", "instance"}
# What servers add to each series of a shard, where shards change their owner.
SHARD_LABELS = {"shard"}
RUNBOOKS = "docs/operations.md"
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
PROMTOOL = shutil.which("promtool")

PANELS = [*of_dashboard(), *of_dashboard(CLUSTER_DASHBOARD)]
QUERIES = [*PANELS, *of_rules()]


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the series of real servers by name, with the labels that they may have.

    For members of a cluster, TLS and stores in an object store, the program says what they serve:
    `make compose-test` asks real ones.
    """
    labels: dict[str, set[str]] = defaultdict(set)
    names: dict[str, set[str]] = {"up": set()}
    for _, registry in metrics_page.registries():
        for metric in metrics_page.metrics_of(registry):
            extra = {"le"} if isinstance(metric, Histogram) else set()
            labels[metric._name] = {*metric._labelnames, *extra, *SHARD_LABELS}
            if "_object_store_" in metric._name or "_certificate_" in metric._name:
                for suffix in SUFFIXES.get(str(metric._type), [""]):
                    names[metric._name + suffix] = labels[metric._name]
    for one in HOST_METRICS:
        for suffix in SUFFIXES.get(one.kind, [""]):
            names[one.name + suffix] = set()
    with running_standalone(tmp_path_factory.mktemp("servers")) as servers:
        for server in ("broker", "coordinator"):
            with urllib.request.urlopen(servers.ready()[server]["metrics"], timeout=10) as reply:
                text = reply.read().decode()
            for family in text_string_to_metric_families(text):
                for suffix in SUFFIXES.get(family.type, [""]):
                    names[family.name + suffix] = labels[family.name]
    return names


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.place)
def test_metrics_and_labels_exist(query: Query, exposed: dict[str, set[str]]) -> None:
    asked = selectors(query.expr)
    assert asked
    for selector in asked:
        assert selector.metric in exposed, f"no server has {selector.metric}: {query.expr}"
        known = exposed[selector.metric] | TARGET_LABELS
        assert selector.labels <= known, query.expr
        assert _grouped_by(query.expr) <= known, query.expr


def test_a_name_that_does_not_exist_is_noticed(exposed: dict[str, set[str]]) -> None:
    wrong = Query("wrong", "sum by (stat) (rate(magnetar_broker_comits_total[1m]))")
    with pytest.raises(AssertionError, match="comits"):
        test_metrics_and_labels_exist(wrong, exposed)
    wrong = Query("wrong", "sum by (stat) (magnetar_coordinator_transactions)")
    with pytest.raises(AssertionError, match="stat"):
        test_metrics_and_labels_exist(wrong, exposed)


def _grouped_by(expr: str) -> set[str]:
    found: set[str] = set()

    def visit(node: object) -> None:
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            found.update(node.modifier.labels)

    promql_parser.walk(promql_parser.parse(expr), visit)
    return found


@pytest.mark.parametrize("query", PANELS, ids=lambda query: query.place)
def test_a_legend_names_labels_that_its_lines_have(query: Query) -> None:
    named = labels_in_text(query.legend)
    assert named <= _grouped_by(query.expr) | TARGET_LABELS, query


def test_the_rules_cover_what_operators_must_hear_of() -> None:
    metrics = {one.metric for query in of_rules() for one in selectors(query.expr)}
    assert metrics >= {
        "up",
        "magnetar_broker_late_partitions",
        "magnetar_coordinator_oldest_finishing_seconds",
        "magnetar_broker_disk_free_bytes",
        "magnetar_broker_group_lag",
        "magnetar_member_shards_unowned",
        "magnetar_member_shards_failing",
        "magnetar_member_shards_failed_total",
        "magnetar_member_may_speak",
        "magnetar_member_lease_renewals_failed_total",
        "magnetar_member_view_age_seconds",
        "magnetar_certificate_expires_timestamp_seconds",
        "magnetar_broker_object_store_log_put_seconds_bucket",
        "magnetar_coordinator_object_store_log_put_seconds_bucket",
    }


def test_every_rule_has_a_test_and_tells_what_to_do() -> None:
    tested = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yaml").read_text())
    fired = {
        one["alertname"]
        for test in tested["tests"]
        for one in test["alert_rule_test"]
        if one["exp_alerts"]
    }
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["alert"] in fired
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
            # A section of that page, as Markdown's renderers name it.
            assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS}#{rule['alert'].lower()}"


def test_every_rule_has_a_section_for_those_who_are_called() -> None:
    page = (DEPLOY.parent / RUNBOOKS).read_text()
    headings = set(re.findall(r"^#+ (Magnetar\w+)$", page, re.MULTILINE))
    rules = {query.place for query in of_rules()}
    assert headings == rules


def test_commands_in_alerts_exist() -> None:
    """Commands in the texts of alerts are commands of the program."""
    from magnetar_cli.program import cli

    commands = re.findall(r"magnetar ([a-z-]+) ([a-z-]+)", ALERTS.read_text())
    assert len(commands) >= 5
    for group, command in commands:
        found = cli.get_command(None, group)  # type: ignore[arg-type]
        assert command in found.commands, (group, command)  # type: ignore[union-attr]


@pytest.mark.skipif(PROMTOOL is None, reason="promtool comes with Prometheus: install that")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "alerts.yaml"),
        ("test", "rules", "alerts_test.yaml"),
        ("check", "config", "--syntax-only", "prometheus.yaml"),
        ("check", "config", "--syntax-only", "prometheus.laptop.yaml"),
    ],
    ids=" ".join,
)
def test_promtool_agrees(arguments: tuple[str, ...]) -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *arguments],
        cwd=DEPLOY / "prometheus",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
