"""Answers that rest on who knows the topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magnetar_broker.local_access import LocalAccess
from magnetar_kafka.answer import Answer
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.shards import Shard


def answer_about(name: str, rows: Sequence[dict[str, Any]], directory: Shard | None) -> Answer:
    """Return an answer with a row for each topic.

    Args:
        name: of the field with the rows.
    """
    return Answer(
        body=lambda: {name: rows},
        rests_on=() if directory is None else (directory,),
        codes=[row["error_code"] for row in rows],
    )


def access_of(directory: Shard | None) -> LocalAccess:
    """Return the broker that knows the topics.

    Raises:
        Refused: there is none here.
    """
    if directory is None:
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, "this server has no shard: ask again")
    return directory.access
