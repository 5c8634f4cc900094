"""Commands about the members of a cluster. A member answers them, and each shard that it has open.

A client that names no shard may reach either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from magnetar_cli.servers.membership import Membership
from magnetar_core.errors import MagnetarError
from magnetar_core.server.commands import Handler, Reply, each, internal_failure
from magnetar_core.server.repeats import Repeats
from magnetar_core.wire import topic_pb2

log = logging.getLogger(__name__)


def membership_handlers(
    membership: Membership, spawn: Callable[[Coroutine[Any, Any, None]], object]
) -> Mapping[str, Handler]:
    """Return the handlers, by names of command fields.

    Args:
        spawn: runs a command that asks the directory.
    """

    def describe(_: topic_pb2.CommandDescribeMembers, reply: Reply) -> None:
        reply.send(membership.describe())

    def change(make: Callable[[Any], Coroutine[Any, Any, Any]], command: Any, reply: Reply) -> None:
        spawn(_answered(make(command), reply))

    repeats = Repeats()
    return {
        "describe_members": each(describe),
        "drain_member": repeats.once(each(partial(change, membership.drain))),
        "rebalance": repeats.once(each(partial(change, membership.rebalance))),
    }


async def _answered(change: Coroutine[Any, Any, Any], reply: Reply) -> None:
    try:
        answer = await change
    except MagnetarError as error:
        reply.fail(error)
    except Exception:
        log.exception("a change of the cluster failed")
        reply.fail(internal_failure())
    else:
        reply.send(answer)
