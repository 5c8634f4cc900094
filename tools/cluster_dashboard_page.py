"""deploy/grafana/dashboards/cluster.json: owners of shards, and the object store."""

from dashboard import BROKER, COORDINATOR, Panel, Row, dashboard, quantile, rate, tile

MEMBER = "magnetar_member"

ROWS = (
    Row(
        title="Now",
        panels=(
            tile(
                "Members that answer",
                "Brokers and coordinators whose lease is renewed.",
                f"sum({MEMBER}_may_speak)",
            ),
            tile(
                "Shards without an owner",
                "Their partitions or transactions wait. A few seconds after a "
                "server died are as designed.",
                f"max({MEMBER}_shards_unowned)",
                warn_above=1,
            ),
            tile(
                "Shards that cannot be opened",
                "The log of the server says why.",
                f"sum({MEMBER}_shards_failing)",
                warn_above=1,
            ),
            tile(
                "the last news from etcd",
                "Time since etcd last told about owners, at the server that has waited longest.",
                f"max({MEMBER}_view_age_seconds)",
                unit="s",
                warn_above=3,
            ),
            tile(
                "Leases lost",
                "Since the servers started: each was silent for too long, or etcd was.",
                f"sum({MEMBER}_leases_lost_total)",
                warn_above=1,
            ),
            tile(
                "Members of etcd",
                "A majority of them has to be up.",
                'sum(up{job="etcd"})',
            ),
        ),
    ),
    Row(
        title="Owners",
        panels=(
            Panel(
                title="Open shards",
                meaning="By server. A server that dies has none, and the others have more.",
                queries={"{{instance}}": f"sum by (job, instance) ({MEMBER}_shards)"},
            ),
            Panel(
                title="Shards that move",
                meaning="Opened, handed over in order, lost with a lease, and ended by "
                "themselves: fenced by another owner, or with a failed store.",
                unit="ops",
                queries={
                    "opened": rate(f"{MEMBER}_openings_total"),
                    "handed over": rate(f"{MEMBER}_handovers_total"),
                    "lost": rate(f"{MEMBER}_shards_lost_total"),
                    "ended by themselves": rate(f"{MEMBER}_shards_failed_total"),
                    "could not be opened": rate(f"{MEMBER}_openings_failed_total"),
                },
            ),
            Panel(
                title="Leases",
                meaning="Renewals that failed: when two in a row are late, a server is silent.",
                unit="ops",
                queries={
                    "renewals failed: {{instance}}": rate(
                        f"{MEMBER}_lease_renewals_failed_total", "instance"
                    ),
                },
            ),
        ),
    ),
    Row(
        title="Transactions, by shard of coordinators",
        panels=(
            Panel(
                title="Opened",
                meaning="A shard that others do not share the load with stands out.",
                unit="ops",
                queries={
                    "coordinator-{{shard}}": rate(
                        f"{COORDINATOR}_transactions_opened_total", "shard"
                    ),
                },
            ),
            Panel(
                title="Decided, ends outstanding",
                meaning="COMMITTING or ABORTING: some participant has not answered yet.",
                queries={
                    "coordinator-{{shard}}": f'sum by (shard) ({COORDINATOR}_transactions{{status=~"committing|aborting"}})',
                },
            ),
            Panel(
                title="Oldest decision that is being finished",
                meaning="Rising: the owner of a broker's shard is away.",
                unit="s",
                queries={
                    "coordinator-{{shard}}": f"max by (shard) ({COORDINATOR}_oldest_finishing_seconds)"
                },
            ),
        ),
    ),
    Row(
        title="Messages, by shard of brokers",
        panels=(
            Panel(
                title="Messages in",
                meaning="Messages accepted; more at one shard than at others: few keys, "
                "or few partitions.",
                unit="ops",
                queries={"broker-{{shard}}": rate(f"{BROKER}_messages_in_total", "shard")},
            ),
            Panel(
                title="Backlog",
                meaning="Over all subscriptions.",
                queries={"broker-{{shard}}": f"sum by (shard) ({BROKER}_backlog)"},
            ),
            Panel(
                title="Group commit, p99",
                meaning="From the write of a group until it is durable: a put to the "
                "object store, and what waits before it.",
                unit="s",
                queries={
                    "broker-{{shard}}": quantile(0.99, f"{BROKER}_group_commit_seconds", "shard"),
                    "coordinator-{{shard}}": quantile(
                        0.99, f"{COORDINATOR}_group_commit_seconds", "shard"
                    ),
                },
            ),
        ),
    ),
    Row(
        title="Object store",
        panels=(
            Panel(
                title="Requests",
                meaning="Providers charge for puts and lists, and less for gets.",
                unit="reqps",
                queries={
                    "brokers: {{operation}}": rate(
                        f"{BROKER}_object_store_requests_total", "operation"
                    ),
                    "coordinators: {{operation}}": rate(
                        f"{COORDINATOR}_object_store_requests_total", "operation"
                    ),
                },
            ),
            Panel(
                title="One put to the log",
                meaning="Every commit waits for one.",
                unit="s",
                queries={
                    "brokers, p50": quantile(0.5, f"{BROKER}_object_store_log_put_seconds"),
                    "brokers, p99": quantile(0.99, f"{BROKER}_object_store_log_put_seconds"),
                    "coordinators, p99": quantile(
                        0.99, f"{COORDINATOR}_object_store_log_put_seconds"
                    ),
                },
            ),
            Panel(
                title="Bytes written",
                meaning="To the log, then to tables, and again by compactions.",
                unit="Bps",
                queries={
                    "brokers: {{part}}": rate(f"{BROKER}_object_store_written_bytes_total", "part")
                },
            ),
        ),
    ),
)


def page() -> str:
    return dashboard("magnetar-cluster", "Magnetar: owners of shards, and the object store", ROWS)
