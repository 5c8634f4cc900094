"""Commands about members, as servers answer them that have a fixed list of members."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar_core.errors import Unimplemented
from magnetar_core.server.commands import Handler, Reply, each

# Names of the commands.
OF_MEMBERS = ("describe_members", "drain_member", "rebalance")


def _refuse(_command: object, _reply: Reply) -> None:
    raise Unimplemented(
        "shards do not move here: this is for clusters whose shards change their owner"
    )


MEMBERSHIP_REFUSALS: Mapping[str, Handler] = dict.fromkeys(OF_MEMBERS, each(_refuse))
