"""Asks questions that every broker of the cluster can answer.

The broker that answered last is asked first. When it is away, or takes too long, the others are
asked as well: brokers that the application named, and those that the cluster names. Where shards
change their owner, a server may have none. It answers only who the members are: other questions go
to shards first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from magnetar.errors import ClientClosed
from magnetar.link.connection_base import ConnectionBase, bear_token
from magnetar.link.first_answer import FirstAnswer
from magnetar.link.runtime import Runtime
from magnetar.link.session import ResponseT
from magnetar.link.shard_connection import ShardConnection
from magnetar_core.errors import (
    ClusterMismatch,
    LogUnavailable,
    MagnetarError,
    OutcomeUnknown,
    UnsupportedVersion,
)
from magnetar_core.membership.shard_address import server_of
from magnetar_core.requests import Request
from magnetar_core.transport.transport import LinkRefused
from magnetar_core.wire import topic_pb2

log = logging.getLogger("magnetar")

# A server at one of the addresses is none of ours: the others may be.
STRANGERS = (ClusterMismatch, UnsupportedVersion)


class AnyBroker:
    """Requests to whichever broker answers."""

    def __init__(
        self, runtime: Runtime, named: Iterable[ConnectionBase], on_silent: Callable[[], None]
    ) -> None:
        """Make an asker that has not asked any broker yet.

        Args:
            named: connections to the addresses that the application named.
            on_silent: called when a broker does not answer and another one has to.
        """
        self._runtime = runtime
        self._named = tuple(dict.fromkeys(named))
        # The first one answered last.
        self._order = list(self._named)
        self._on_silent = on_silent

    @property
    def everybody(self) -> Sequence[ConnectionBase]:
        """All who can be asked, the one that answered last first."""
        return self._order

    def learn(self, others: Iterable[ConnectionBase]) -> None:
        """Replace those that the cluster named by these."""
        known = dict.fromkeys((*self._named, *others))
        self._order = [one for one in self._order if one in known]
        self._order += [one for one in known if one not in self._order]

    async def request(
        self, body: Request[ResponseT], *, timeout_ms: float | None = None
    ) -> ResponseT:
        """Ask until a broker answers.

        Raises:
            OutcomeUnknown: a broker was asked, and none answered in time. It may have had its
                effect.
            LogUnavailable: no broker could be asked in time.
            ClusterMismatch: the only servers that answer belong to another cluster.
            MagnetarError: a broker refused.
        """
        reply, _ = await self.ask(body, timeout_ms=timeout_ms)
        return reply

    async def ask(
        self,
        body: Request[ResponseT],
        *,
        timeout_ms: float | None = None,
        patience_ms: float | None = None,
        turn: int = 0,
    ) -> tuple[ResponseT, ConnectionBase]:
        """Do the same as request, and also return who answered.

        Args:
            patience_ms: how long one may take before the next one is asked too; by default
                `broker_patience_ms`.
            turn: how many to pass over at first, since what they know is not enough.
        """
        self._runtime.require_loop()
        if timeout_ms is None:
            timeout_ms = self._runtime.config.operation_timeout_ms
        if patience_ms is None:
            patience_ms = self._runtime.config.broker_patience_ms
        bear_token(body, self._runtime)
        order = self._order_for(body, turn)
        if len(order) == 1:
            (only,) = order
            reply = await only.repeat(reached_at(body, only.address), timeout_ms=timeout_ms)
            return reply, only
        deadline_ms = self._runtime.now_ms() + timeout_ms

        async def repeat(connection: ConnectionBase) -> ResponseT:
            return await connection.repeat(
                reached_at(body, connection.address),
                timeout_ms=max(1.0, deadline_ms - self._runtime.now_ms()),
            )

        question = FirstAnswer(
            self._runtime,
            repeat,
            name=f"{body.DESCRIPTOR.name} to any broker",
            patience_ms=patience_ms,
            is_no_answer=_is_no_answer,
            on_silent=self._suspect,
        )
        try:
            answer = await question.among(order)
        finally:
            await question.cancel()
        if answer is None:
            raise _nobody(question.failures)
        self._trust(answer[1])
        return answer

    def _order_for(self, body: Request[ResponseT], turn: int) -> list[ConnectionBase]:
        turn %= len(self._order)
        order = self._order[turn:] + self._order[:turn]
        if isinstance(body, topic_pb2.CommandGetClusterInfo):
            return order
        return sorted(order, key=lambda one: not isinstance(one, ShardConnection))

    def _trust(self, connection: ConnectionBase) -> None:
        if connection in self._order and connection is not self._order[0]:
            self._order.remove(connection)
            self._order.insert(0, connection)

    def _suspect(self, connection: ConnectionBase) -> None:
        # While shards have no owners this happens all the time.
        log.debug("%s does not answer: others are asked", connection.title)
        self._on_silent()


def reached_at(body: Request[ResponseT], address: str) -> Request[ResponseT]:
    """Return a copy of a command that says where its broker was reached, if it can."""
    copy = type(body)()
    copy.CopyFrom(body)
    if "reached_at" in body.DESCRIPTOR.fields_by_name:
        said: Any = copy
        said.reached_at = server_of(address)
    return copy


def _is_no_answer(error: MagnetarError) -> bool:
    """Whether another broker may know more; or the client is closed, and one may have heard it."""
    return (
        error.kind.may_pass
        or isinstance(error, (*STRANGERS, ClientClosed))
        or isinstance(error.__cause__, LinkRefused)
    )


def _nobody(failures: Mapping[ConnectionBase, MagnetarError]) -> MagnetarError:
    """Return the error for a question that no broker answered."""
    kinds = [type(error) for error in failures.values()]
    kind: type[MagnetarError] = kinds[-1]
    for worse in (OutcomeUnknown, LogUnavailable):
        if worse in kinds:
            kind = worse
            break
    told = "; ".join(f"{one.title}: {error}" for one, error in failures.items())
    nobody = kind(f"no broker answers: {told}")
    nobody.__cause__ = next(iter(failures.values()))
    return nobody
