"""Asks all brokers of a cluster what each of them knows for its own partitions."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.link.cluster import Cluster
from magnetar.link.members import Member
from magnetar.link.session import ResponseT
from magnetar.link.whole_topics import all_of
from magnetar_core.errors import GroupNotFound, LogUnavailable, MagnetarError
from magnetar_core.requests import Request


async def ask_all_brokers(
    cluster: Cluster, command: Callable[[], Request[ResponseT]]
) -> list[ResponseT]:
    """Ask all brokers about a group, at the same time.

    Args:
        command: returns the command for one broker.
    Returns:
        The answers of those that have the group.
    Raises:
        GroupNotFound: none of them has it.
        LogUnavailable: a broker does not answer in time. Others may have done what they were asked.
        MagnetarError: a broker refuses. Others may have done what they were asked.
    """

    async def ask(broker: Member) -> ResponseT | GroupNotFound:
        try:
            return await cluster.broker(broker).request(command())
        except GroupNotFound as error:
            return error
        except MagnetarError as error:
            if not error.kind.may_pass:
                raise
            title = cluster.broker_title(broker.address)
            raise LogUnavailable(f"{title} does not answer: {error}") from error

    await cluster.info()
    answers = await all_of(cluster.runtime, [ask(one) for one in cluster.brokers])
    found = [one for one in answers if not isinstance(one, GroupNotFound)]
    if not found:
        for one in answers:
            if isinstance(one, GroupNotFound):
                raise one
    return found
