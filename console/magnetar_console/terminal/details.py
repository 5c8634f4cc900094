"""Details of a row: the view that it comes from, and its lines. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from magnetar_console.looks import view as views
from magnetar_console.looks.view import View
from magnetar_console.seen import Row, Tables
from magnetar_console.terminal import cluster_tabs, topic_tabs, transaction_tabs
from magnetar_console.terminal.cluster_details import server_lines, shard_lines
from magnetar_console.terminal.columns import Tab
from magnetar_console.terminal.lines import Lines
from magnetar_console.terminal.topic_details import group_lines, subscription_lines, topic_lines
from magnetar_console.terminal.transaction_details import transaction_lines


class Details(NamedTuple):
    """The details of a row.

    Attributes:
        title: what it is.
        view: where it comes from.
        lines: its text, of tables, the present time and the width of the terminal.
    """

    title: str
    view: View
    lines: Callable[[Tables, int, int], Lines]


def details_of(tab: Tab, key: str, row: Row) -> Details:
    """Return the details of a row of a tab."""
    match tab:
        case transaction_tabs.TRANSACTIONS_TAB | transaction_tabs.ENDED_TAB:
            return Details(f"Transaction {key}", View(views.TRANSACTION, key), transaction_lines)
        case topic_tabs.TOPICS_TAB:
            return Details(f"Topic {row['name']}", View(views.TOPIC, row["name"]), topic_lines)
        case topic_tabs.SUBSCRIPTIONS_TAB:
            name, topic = row["name"], row["topic"]
            return Details(
                f"Subscription {name} of {topic}",
                View(views.TOPIC, topic),
                lambda tables, _, __: subscription_lines(tables, name),
            )
        case topic_tabs.GROUPS_TAB:
            return Details(f"Group {row['name']}", View(views.GROUP, row["name"]), group_lines)
        case cluster_tabs.SERVERS_TAB:
            return Details(
                f"Server {row['address']}",
                View(views.CLUSTER),
                lambda tables, now_ms, _: server_lines(tables, key, now_ms),
            )
        case _:
            return Details(
                f"Shard {row['name']}",
                View(views.CLUSTER),
                lambda tables, now_ms, _: shard_lines(tables, key, now_ms),
            )
