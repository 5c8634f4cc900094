"""deploy/grafana/dashboards/transactions.json: the life of transactions."""

from dashboard import BROKER, COORDINATOR, Panel, Row, dashboard, quantile, rate, tile

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
                "Transactions that are not decided yet.",
                f'sum({COORDINATOR}_transactions{{status="open"}})',
            ),
            tile(
                "Oldest open",
                "It delays no other client, and keeps the messages that it acknowledged.",
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
                queries={
                    "opened": rate(f"{COORDINATOR}_transactions_opened_total"),
                    "{{status}}": rate(f"{COORDINATOR}_transactions_ended_total", "status"),
                    "expired": rate(f"{COORDINATOR}_transactions_expired_total"),
                },
            ),
            Panel(
                title="Live transactions",
                meaning="COMMITTING and ABORTING are decided: they wait for participants.",
                is_stacked=True,
                queries={"{{status}}": f"sum by (status) ({COORDINATOR}_transactions)"},
            ),
            Panel(
                title="From the decision to the last participant",
                meaning="How long readers wait for a commit, p50 and p99.",
                unit="s",
                queries={
                    "p50": quantile(0.5, f"{COORDINATOR}_finishing_seconds"),
                    "p99": quantile(0.99, f"{COORDINATOR}_finishing_seconds"),
                },
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
                queries={
                    "{{outcome}}": rate(f"{BROKER}_txn_ends_total", "outcome"),
                    "ends sent again": rate(f"{COORDINATOR}_ends_repeated_total"),
                },
            ),
            Panel(
                title="In the sidecar logs",
                meaning="Bytes of messages that wait for their transaction's end.",
                unit="bytes",
                queries={"bytes": f"sum by (instance) ({BROKER}_txnlog_open_bytes)"},
            ),
            Panel(
                title="Open at participants, and pending acks",
                meaning="A transaction counts at each of its partitions and subscriptions.",
                queries={
                    "open": f"sum({BROKER}_open_txns)",
                    "messages in PENDING_ACK": f"sum({BROKER}_pending_acks)",
                },
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
                queries={
                    "in: {{kind}}": rate(f"{BROKER}_messages_in_total", "kind"),
                    "out": rate(f"{BROKER}_messages_out_total"),
                },
            ),
            Panel(
                title="Bytes in and out",
                meaning="Of stored batches, as compressed by their producers.",
                unit="Bps",
                queries={
                    "in": rate(f"{BROKER}_bytes_in_total"),
                    "out": rate(f"{BROKER}_bytes_out_total"),
                },
            ),
            Panel(
                title="Backlog and group lag",
                meaning="Messages that are committed and not acknowledged.",
                queries={
                    "all subscriptions": f"sum({BROKER}_backlog)",
                    "{{group}} on {{topic}}": f"sum by (group, topic) ({BROKER}_group_lag)",
                },
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
                queries={
                    "broker": quantile(0.99, f"{BROKER}_group_commit_seconds"),
                    "coordinators": quantile(0.99, f"{COORDINATOR}_group_commit_seconds"),
                },
            ),
            Panel(
                title="Free disk",
                meaning="Below free_space_floor_bytes sends get DiskFull.",
                unit="bytes",
                queries={"{{instance}}": f"{BROKER}_disk_free_bytes"},
            ),
            Panel(
                title="Refusals",
                meaning="Commands refused, by the error's name: what clients do wrong.",
                unit="ops",
                queries={
                    "broker: {{error}}": rate(f"{BROKER}_refusals_total", "error"),
                    "coordinator: {{error}}": rate(f"{COORDINATOR}_refusals_total", "error"),
                },
            ),
        ),
    ),
)


def page() -> str:
    return dashboard("magnetar-transactions", "Magnetar: the life of transactions", ROWS)
