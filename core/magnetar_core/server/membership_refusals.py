"""Commands about members, as servers and shards without a directory of members answer them.

A server whose shards change their owner answers them itself, and none of its shards.
"""

from __future__ import annotations

from collections.abc import Mapping

from magnetar_core.errors import Unimplemented
from magnetar_core.server.commands import Handler, Reply, each

# Names of the commands.
OF_MEMBERS = ("describe_members", "drain_member", "rebalance")


def _refuse(_command: object, _reply: Reply) -> None:
    raise Unimplemented(
        "shards do not move here: ask a server of a cluster whose shards change their owner, and"
        " not one of its shards"
    )


MEMBERSHIP_REFUSALS: Mapping[str, Handler] = dict.fromkeys(OF_MEMBERS, each(_refuse))
