"""deploy/grafana/dashboards/transactions.json: the life of transactions, as a Grafana dashboard."""

import json
from collections.abc import Iterable
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
class Query:
    """A PromQL expression and what its lines are called: {{label}} stands for a label's value."""

    expr: str
    legend: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A drawing, or a tile with one number.

    Attributes:
        unit: as Grafana names it.
        warn_above: a tile turns red from there on.
    """

    title: str
    meaning: str
    queries: tuple[Query, ...]
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
        queries=(Query(expr=expr, legend=title),),
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


ROWS = (
    Row(
        title="Now",
        panels=(
            tile("Servers up", "Of those that Prometheus asks.", 'sum(up{job=~"magnetar-.*"})'),
            tile(
                "Committed a second",
                "Transactions that every participant has committed.",
                rate(f'{COORDINATOR}_transactions_ended_total{{status="committed"}}'),
                "ops",
            ),
            tile(
                "Open",
                "Transactions that nobody has decided yet.",
                f'sum({COORDINATOR}_transactions{{status="open"}})',
            ),
            tile(
                "Oldest open",
                "It delays nobody, and keeps what it acknowledged.",
                f"max({COORDINATOR}_oldest_open_seconds)",
                "s",
                900,
            ),
            tile(
                "Oldest being finished",
                "Since the decision that not every participant has answered. Rising: a broker is"
                " away, or refuses.",
                f"max({COORDINATOR}_oldest_finishing_seconds)",
                "s",
                60,
            ),
            tile(
                "Late partitions",
                "With a transaction that is open for longer than late_txn_ms (KIP-664).",
                f"sum({BROKER}_late_partitions)",
                warn_above=1,
            ),
        ),
    ),
    Row(
        title="From the beginning to the decision",
        panels=(
            Panel(
                title="Opened and ended",
                meaning="Aborted ones were given up by their clients, or expired.",
                unit="ops",
                queries=(
                    Query(expr=rate(f"{COORDINATOR}_transactions_opened_total"), legend="opened"),
                    Query(
                        expr=rate(f"{COORDINATOR}_transactions_ended_total", "status"),
                        legend="{{status}}",
                    ),
                    Query(expr=rate(f"{COORDINATOR}_transactions_expired_total"), legend="expired"),
                ),
            ),
            Panel(
                title="Live transactions",
                meaning="COMMITTING and ABORTING are decided: they wait for participants.",
                is_stacked=True,
                queries=(
                    Query(
                        expr=f"sum by (status) ({COORDINATOR}_transactions)", legend="{{status}}"
                    ),
                ),
            ),
            Panel(
                title="From the decision to the last participant",
                meaning="How long readers wait for a commit, p50 and p99.",
                unit="s",
                queries=(
                    Query(expr=quantile(0.5, f"{COORDINATOR}_finishing_seconds"), legend="p50"),
                    Query(expr=quantile(0.99, f"{COORDINATOR}_finishing_seconds"), legend="p99"),
                ),
            ),
        ),
    ),
    Row(
        title="At the participants",
        panels=(
            Panel(
                title="Transactions ended on partitions",
                meaning="Each counts once at every partition; ends sent again mean late answers.",
                unit="ops",
                queries=(
                    Query(expr=rate(f"{BROKER}_txn_ends_total", "outcome"), legend="{{outcome}}"),
                    Query(
                        expr=rate(f"{COORDINATOR}_ends_repeated_total"), legend="ends sent again"
                    ),
                ),
            ),
            Panel(
                title="In the sidecar logs",
                meaning="Bytes of messages that wait for their transaction's end.",
                unit="bytes",
                queries=(
                    Query(expr=f"sum by (instance) ({BROKER}_txnlog_open_bytes)", legend="bytes"),
                ),
            ),
            Panel(
                title="Open at participants, and pending acks",
                meaning="A transaction counts at each of its partitions and subscriptions.",
                queries=(
                    Query(expr=f"sum({BROKER}_open_txns)", legend="open"),
                    Query(expr=f"sum({BROKER}_pending_acks)", legend="messages in PENDING_ACK"),
                ),
            ),
        ),
    ),
    Row(
        title="Messages",
        panels=(
            Panel(
                title="Messages in and out",
                meaning="Transactional ones count when they are stored, before the decision.",
                unit="ops",
                queries=(
                    Query(expr=rate(f"{BROKER}_messages_in_total", "kind"), legend="in: {{kind}}"),
                    Query(expr=rate(f"{BROKER}_messages_out_total"), legend="out"),
                ),
            ),
            Panel(
                title="Bytes in and out",
                meaning="Of stored batches, as compressed by their producers.",
                unit="Bps",
                queries=(
                    Query(expr=rate(f"{BROKER}_bytes_in_total"), legend="in"),
                    Query(expr=rate(f"{BROKER}_bytes_out_total"), legend="out"),
                ),
            ),
            Panel(
                title="Backlog and group lag",
                meaning="Messages that are committed and not acknowledged.",
                queries=(
                    Query(expr=f"sum({BROKER}_backlog)", legend="all subscriptions"),
                    Query(
                        expr=f"sum by (group, topic) ({BROKER}_group_lag)",
                        legend="{{group}} on {{topic}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        title="Servers",
        panels=(
            Panel(
                title="Group commit, p99",
                meaning="Write and sync of one group: everything waits for it.",
                unit="s",
                queries=(
                    Query(expr=quantile(0.99, f"{BROKER}_group_commit_seconds"), legend="broker"),
                    Query(
                        expr=quantile(0.99, f"{COORDINATOR}_group_commit_seconds"),
                        legend="coordinators",
                    ),
                ),
            ),
            Panel(
                title="Free disk",
                meaning="Below free_space_floor_bytes sends get DiskFull.",
                unit="bytes",
                queries=(Query(expr=f"{BROKER}_disk_free_bytes", legend="{{instance}}"),),
            ),
            Panel(
                title="Refusals",
                meaning="Commands refused, by the error's name: what clients do wrong.",
                unit="ops",
                queries=(
                    Query(
                        expr=rate(f"{BROKER}_refusals_total", "error"), legend="broker: {{error}}"
                    ),
                    Query(
                        expr=rate(f"{COORDINATOR}_refusals_total", "error"),
                        legend="coordinator: {{error}}",
                    ),
                ),
            ),
        ),
    ),
)


def page() -> str:
    return dashboard("magnetar-transactions", "Magnetar: the life of transactions", ROWS)


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
                "expr": query.expr,
                "legendFormat": query.legend,
            }
            for number, query in enumerate(panel.queries)
        ],
    }
