"""Each alert has a section in docs/operations.md that says what to do, and leads there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.docs.test_links import ROOT, anchor, anchors

PAGE = ROOT / "docs" / "operations.md"
CONFIGURATION = ROOT / "docs" / "configuration.md"
PARTS = ("*Means*: ", "*Look at*: ", "*Do*:")


def alerts() -> list[dict[str, Any]]:
    content = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def sections() -> dict[str, str]:
    """The sections about alerts, by their headings."""
    text = PAGE.read_text().partition("\n## Alerts\n")[2]
    parts = re.split(r"^### (\w+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_has_a_section_and_points_to_it(rule: dict[str, Any]) -> None:
    section = sections()[rule["alert"]]
    places = [section.index(part) for part in PARTS]
    assert places == sorted(places)
    assert re.search(r"^1\. ", section, re.MULTILINE), "what to do, step by step"
    file, _, place = rule["annotations"]["runbook_url"].partition("#")
    assert ROOT / file == PAGE
    assert place == anchor(rule["alert"])
    assert place in anchors(PAGE)


def test_there_is_no_section_without_an_alert() -> None:
    assert set(sections()) == {rule["alert"] for rule in alerts()}


def test_settings_and_metrics_that_it_names_exist() -> None:
    known = "".join(
        (ROOT / "docs" / name).read_text() for name in ("configuration.md", "metrics.md")
    )
    text = PAGE.read_text()
    metrics = set(re.findall(r"`(magnetar_\w+)`", text))
    settings = set(re.findall(r"`(\w+_(?:ms|bytes|max|bytes_max|floor_bytes|ms_max))`", text))
    of_clients = {"linger_ms", "operation_timeout_ms"}
    missing = [one for one in sorted(metrics | settings - of_clients) if one not in known]
    assert missing == []
    assert len(metrics) > 5


def test_a_page_says_when_to_change_each_setting() -> None:
    """It is this page, or the page of its subject; what no page names should be a constant."""
    pages = [one for one in (ROOT / "docs").glob("*.md") if one.name != "configuration.md"]
    words = re.findall(r"[\w-]+", " ".join(page.read_text() for page in pages))
    named = {word.lower().strip("-").replace("-", "_") for word in words}
    named |= {word.removeprefix("magnetar_") for word in named}
    settings = re.findall(r"^\| `(\w+)` \|", CONFIGURATION.read_text(), re.MULTILINE)
    assert [setting for setting in settings if setting not in named] == []
    assert len(settings) > 80


def test_the_commands_that_it_names_exist() -> None:
    from magnetar_cli.program import cli

    context = click.Context(cli)
    for name in set(re.findall(r"magnetar ([a-z-]+)", PAGE.read_text())):
        assert cli.get_command(context, name) is not None, name


def test_the_page_is_found() -> None:
    assert "(operations.md)" in Path(ROOT / "docs" / "index.md").read_text()
