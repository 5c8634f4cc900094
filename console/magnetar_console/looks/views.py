"""The look of each view."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from magnetar_console.channel import Look
from magnetar_console.looks import view as views
from magnetar_console.looks.cluster import ClusterLook
from magnetar_console.looks.contents import Show, content
from magnetar_console.looks.groups import GroupLook, GroupsLook
from magnetar_console.looks.held import HeldLook
from magnetar_console.looks.messages import MessagesLook
from magnetar_console.looks.topics import TopicLook, TopicsLook
from magnetar_console.looks.transaction import TransactionLook
from magnetar_console.looks.transactions import TransactionsLook
from magnetar_console.looks.view import View
from magnetar_core.clock import Clock
from magnetar_core.ids import TxnID
from magnetar_core.transport.transport import Transport


def look_of(
    view: View,
    new_transport: Callable[[], Transport],
    clock: Clock,
    shows: Mapping[str, Show],
) -> Look:
    """Return a new look.

    Args:
        new_transport: makes a transport to servers, with the rights of the viewers.
        shows: how the values of topics are shown; those of others by their look.
    """
    match view.kind:
        case views.TRANSACTIONS:
            return TransactionsLook(clock)
        case views.TRANSACTION:
            return TransactionLook(TxnID.parse(view.name), clock)
        case views.TOPICS | views.CUTS:
            return TopicsLook(clock)
        case views.TOPIC:
            return TopicLook(view.name)
        case views.MESSAGES:
            return MessagesLook(view.name, view.partition, shows.get(view.name, content))
        case views.GROUPS:
            return GroupsLook()
        case views.GROUP:
            return GroupLook(view.name)
        case views.HANGING:
            return HeldLook(clock)
        case _:
            return ClusterLook(new_transport, clock)
