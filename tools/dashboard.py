"""Parts of a Grafana dashboard: rows of panels, which draw the answers of Prometheus."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Grafana's grid has 24 columns; a row of panels is so high.
WIDTH = 24
HEIGHT = 8
TILE_HEIGHT = 4
DATASOURCE = {"type": "prometheus", "uid": "prometheus"}

BROKER = "magnetar_broker"
COORDINATOR = "magnetar_coordinator"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A drawing, or a tile with one number.

    Attributes:
        queries: PromQL expressions, by what their lines are called: {{label}} stands for a label's
            value.
        unit: as Grafana names it.
        warn_above: a tile turns red from there on.
    """

    title: str
    meaning: str
    queries: Mapping[str, str]
    unit: str = "short"
    is_tile: bool = False
    is_stacked: bool = False
    warn_above: float | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def tile(
    title: str, meaning: str, expr: str, unit: str = "short", warn_above: float | None = None
) -> Panel:
    return Panel(
        title=title,
        meaning=meaning,
        queries={title: expr},
        unit=unit,
        is_tile=True,
        warn_above=warn_above,
    )


def rate(metric: str, by: str = "") -> str:
    summed = f"sum by ({by})" if by else "sum"
    return f"{summed} (rate({metric}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    return (
        f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))"
    )


def dashboard(uid: str, title: str, rows: Iterable[Row]) -> str:
    panels: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        panels.append(_place({"type": "row", "title": row.title, "panels": []}, 0, top, WIDTH, 1))
        width = WIDTH // len(row.panels)
        height = TILE_HEIGHT if row.panels[0].is_tile else HEIGHT
        for place, panel in enumerate(row.panels):
            panels.append(_place(_panel(panel), place * width, top + 1, width, height))
        top += 1 + height
    for number, one in enumerate(panels, 1):
        one["id"] = number
    content = {
        "uid": uid,
        "title": title,
        "tags": ["magnetar"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "panels": panels,
    }
    return json.dumps(content, indent=1) + "\n"


def _place(panel: dict[str, Any], x: int, y: int, width: int, height: int) -> dict[str, Any]:
    return {**panel, "gridPos": {"x": x, "y": y, "w": width, "h": height}}


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    options: dict[str, Any]
    if panel.is_tile:
        steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
        if panel.warn_above is not None:
            steps.append({"color": "red", "value": panel.warn_above})
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area"}
    else:
        stacking = {"mode": "normal" if panel.is_stacked else "none", "group": "A"}
        defaults["custom"] = {"fillOpacity": 20 if panel.is_stacked else 5, "stacking": stacking}
        options = {"legend": {"displayMode": "list", "placement": "bottom"}}
    return {
        "type": "stat" if panel.is_tile else "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": expr,
                "legendFormat": legend,
            }
            for number, (legend, expr) in enumerate(panel.queries.items())
        ],
    }
