"""The tables of `magnetar top`, in the order of their keys. Pure."""

from __future__ import annotations

from typing import Final

from magnetar_console.terminal.cluster_tabs import SERVERS_TAB, SHARDS_TAB
from magnetar_console.terminal.topic_tabs import GROUPS_TAB, SUBSCRIPTIONS_TAB, TOPICS_TAB
from magnetar_console.terminal.transaction_tabs import ENDED_TAB, TRANSACTIONS_TAB

TABS: Final = (
    *(TRANSACTIONS_TAB, ENDED_TAB, TOPICS_TAB, SUBSCRIPTIONS_TAB),
    *(GROUPS_TAB, SERVERS_TAB, SHARDS_TAB),
)
