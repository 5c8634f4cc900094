"""Fetch a new store's incarnation from the broker that keeps the cluster's metadata.

So no TxnID is ever issued twice, not even after the loss of a coordinator's disk.
"""

from __future__ import annotations

import logging

from magnetar_coordinator.broker_question import BrokerQuestion
from magnetar_core.wire import topic_pb2

log = logging.getLogger(__name__)


async def take_incarnation(question: BrokerQuestion, tcid: int, store_token: str) -> int:
    """Ask until the broker answers; asking again with the same token is harmless."""
    log.info("asking for the incarnation of a new store")
    request = topic_pb2.CommandTakeIncarnation(tcid=tcid, store_token=store_token)
    answer: topic_pb2.CommandTakeIncarnationResponse = await question.ask(
        request, "take_incarnation_response"
    )
    return answer.incarnation
