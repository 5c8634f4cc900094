"""Work that counts once: its name, its transaction, and its fingerprint.

The name of a micro-batch is that of its query. The name of a batch write consists of its txnAppId
and its topic. Both are named sequences: see docs/design/0005-spark.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from magnetar import blocking
from magnetar_core.errors import SequenceTooOld
from magnetar_spark.content import Content
from magnetar_spark.errors import SinkError
from magnetar_spark.options.sink import SinkOptions

log = logging.getLogger("magnetar.spark")

# The coordinator refuses longer ones.
NAME_CHARACTERS_MAX = 255


@dataclass(frozen=True)
class Work:
    """A piece of work that counts once.

    Attributes:
        run_token: identifies this attempt at the work, and is the same in all its tasks.
    """

    name: str
    sequence: int
    run_token: str

    def __str__(self) -> str:
        return f"{self.name} {self.sequence}"


def name_of_query(query_id: str) -> str:
    """Return the name of a query's sequence."""
    return f"spark/{query_id}"


def name_of_app(app_id: str, topic: str | None) -> str:
    """Return the name of batch writes to a topic, or of those that take the topic from a column.

    A function of foreachBatch may write to several topics, and each write counts by itself. No
    topic's name has a colon.
    """
    name = f"spark/topics/{app_id}" if topic is None else f"spark/topic/{topic}:{app_id}"
    if len(name) <= NAME_CHARACTERS_MAX:
        return name
    kind = name.split("/")[1]
    return f"spark/{kind}/{sha256(name.encode()).hexdigest()}"


def begin(client: blocking.Client, work: Work, *, timeout_ms: int) -> blocking.Transaction:
    """Join the transaction of the work, or begin it.

    Raises:
        SequenceCommitted: this run or another run has committed the work.
        SequenceTooOld: later work is committed already.
    """
    return client.begin_named_transaction(
        work.name, work.sequence, work.run_token, timeout_s=timeout_ms / 1000
    )


def too_old(work: Work, error: SequenceTooOld) -> SinkError:
    """Return the error for work whose successor is committed already."""
    return SinkError(
        f"{error}. {work} was written before, and later ones too: the checkpoint is older than the"
        " topic, as when a copy of it was put back. Go on with the newer checkpoint, or begin with"
        " a new one, which writes everything that it reads again"
    )


def require_same(
    options: SinkOptions, work: str, found: Content, committed: Iterable[str | None]
) -> None:
    """Check that committed work has the same rows as this run.

    Args:
        found: the fingerprint of this run, over all of its tasks.
        committed: what each task learned of the committed work's fingerprint; None: unknown.
    Raises:
        SinkError: the rows differ, and the options do not allow that.
    """
    for one in dict.fromkeys(committed):
        if one is None:
            log.warning(
                "%s was committed without a fingerprint, by another program than this sink:"
                " whether its rows were these, %s, is not known. Nothing is written",
                work,
                found,
            )
        elif one == str(found):
            log.info("%s is committed already: nothing is written", work)
        elif not options.fail_on_replay_mismatch:
            log.warning(
                "%s is committed with %s, and comes again with %s: nothing is written, since"
                " failOnReplayMismatch is off",
                *(work, one, found),
            )
        else:
            raise SinkError(
                f"{work} is committed with other rows: {one}; this run has {found}. Nothing of this"
                " run was written. Either the checkpoint is older than the topic, as when a copy"
                " was put back or its last files were lost, or it is another query's: go on with"
                " the newer checkpoint, or begin with a new one, which writes everything that it"
                " reads again. Or two writes to the same topics have one txnAppId and txnVersion:"
                " give each a txnAppId of its own. Or the query gives other rows whenever it runs,"
                " as with rand(): to take the committed ones for these, set failOnReplayMismatch to"
                " 'false'"
            )


def total(contents: Iterable[Content]) -> Content:
    """Return the sum of fingerprints."""
    return sum(contents, Content())
