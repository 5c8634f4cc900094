"""`magnetar cluster drain`, `move` and `rebalance`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import click

from magnetar_cli.cluster.options import etcd_options, with_directory
from magnetar_cli.types import Duration

if TYPE_CHECKING:
    from magnetar_cluster.directory.cluster_directory import ClusterDirectory

# As of errors.STATUS_OF_KIND: ask again later.
NOT_YET_STATUS = 10

no_wait_option = click.option(
    "--no-wait", is_flag=True, help="Return when etcd has noted it, before any shard has moved."
)
timeout_option = click.option(
    "--timeout", type=Duration(), default="5m", show_default=True, help="How long to wait."
)
kind_option = click.option(
    "--kind",
    type=click.Choice(["broker", "coordinator"]),
    help="The kind of the member, if two have its name.",
)


@click.command()
@click.argument("member")
@kind_option
@click.option("--undo", is_flag=True, help="Let it have shards again.")
@no_wait_option
@timeout_option
@etcd_options
def drain(
    member: str,
    kind: str | None,
    undo: bool,
    no_wait: bool,
    timeout: int,
    etcd: str | None,
    cluster_id: str,
) -> None:
    """Take all shards away from MEMBER, as before its machine goes down.

    The others get them, one at a time. MEMBER gets no shards until --undo, also when it is
    started anew. A server that is stopped by SIGTERM hands its shards over by itself.
    """
    from magnetar_cli.cluster import changes
    from magnetar_cli.progress import JobProgress

    async def work(directory: ClusterDirectory) -> str:
        now = await changes.known(directory)
        name = changes.member_named(now.view, member, kind, also=now.view.draining)
        if undo:
            did = await changes.end_drain(directory, now.view, name)
            return f"{member} may have shards again" if did else f"{member} was not draining"
        await changes.begin_drain(directory, now.view, name, may_wait=no_wait)
        if no_wait:
            return f"{member} is draining"
        with JobProgress(f"drained {member}:", "shards") as progress:
            await _patiently(
                changes.until_drained(directory, name, progress.show), timeout, f"{member} drains"
            )
        return f"{member} has no shards"

    print(with_directory(etcd, cluster_id, work))


@click.command()
@click.argument("shard")
@click.argument("member")
@no_wait_option
@timeout_option
@etcd_options
def move(
    shard: str, member: str, no_wait: bool, timeout: int, etcd: str | None, cluster_id: str
) -> None:
    """Move SHARD, such as broker-3, to MEMBER, and pin it there.

    While MEMBER is away or draining, another one has the shard. `magnetar cluster rebalance` takes
    all pins back.
    """
    from magnetar_cli.cluster import changes
    from magnetar_cli.progress import JobProgress

    async def work(directory: ClusterDirectory) -> str:
        now = await changes.known(directory)
        name = changes.shard_named(now.fixed, shard)
        to = changes.member_named(now.view, member, name.kind)
        await changes.pin(directory, now.view, name, to)
        if no_wait:
            return f"{shard} is pinned to {member}"
        with JobProgress("moved", "shards") as progress:
            await _patiently(
                changes.until_moved(directory, name, to, progress.show),
                timeout,
                f"{shard} is pinned to {member}",
            )
        return f"{member} has {shard}"

    print(with_directory(etcd, cluster_id, work))


@click.command()
@no_wait_option
@timeout_option
@etcd_options
def rebalance(no_wait: bool, timeout: int, etcd: str | None, cluster_id: str) -> None:
    """Take all pins back, and wait until every shard is where it belongs.

    Shards move when members have stayed the same for the settling time.
    """
    from magnetar_cli.cluster import changes
    from magnetar_cli.progress import JobProgress

    async def work(directory: ClusterDirectory) -> str:
        now = await changes.known(directory)
        pinned = await changes.take_pins_back(directory, now.view)
        took = f"took {len(pinned)} pin{'s' * (len(pinned) != 1)} back"
        if no_wait:
            return took
        with JobProgress("in place:", "shards") as progress:
            await _patiently(
                changes.until_balanced(directory, now.fixed, progress.show), timeout, took
            )
        return f"{took}; every shard is where it belongs"

    print(with_directory(etcd, cluster_id, work))


async def _patiently(waiting: Awaitable[None], timeout_ms: int, noted: str) -> None:
    """Wait for it, for some time.

    Args:
        noted: what stays true when this gives up.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            await waiting
    except TimeoutError:
        failure = click.ClickException(
            f"{noted}, but it is not done after {timeout_ms // 1_000} s and goes on;"
            " `magnetar cluster shards` shows what is left, and the logs of the members say why"
        )
        failure.exit_code = NOT_YET_STATUS  # type: ignore[misc]
        raise failure from None
