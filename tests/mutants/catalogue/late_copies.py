"""Mistakes about copies of deletions that arrive when something was made anew."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SERVICE = "broker/magnetar_broker/commands/service.py"
_KEEPER = "broker/magnetar_broker/topic_directory/keeper.py"
_COORDINATOR = "coordinator/magnetar_coordinator/commands/service.py"
_REPEATS = "core/magnetar_core/server/repeats.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="late-topic-deletion-deletes",
        file=_SERVICE,
        old='    "create_topic",\n    "delete_topic",\n',
        new='    "create_topic",\n',
        mistake="A copy of a deletion deletes the topic that was made anew.",
    ),
    Mutant(
        name="late-unsubscribe-deletes",
        file=_SERVICE,
        old='    "unsubscribe",\n    "leave_group",',
        new='    "leave_group",',
        mistake="A copy of a deletion deletes the subscription that was made anew.",
    ),
    Mutant(
        name="late-group-deletion-deletes",
        file=_SERVICE,
        old='    "delete_group",\n    "skip_damaged",\n)',
        new='    "skip_damaged",\n)',
        mistake="A copy of a deletion deletes the group that was made anew.",
    ),
    Mutant(
        name="late-name-removal-removes",
        file=_COORDINATOR,
        old='        for name in ("new_txn", "remove_name"):',
        new='        for name in ("new_txn",):',
        mistake="A copy of a removal makes a name forget what was committed since.",
    ),
    Mutant(
        name="topic-id-of-deletion-ignored",
        file=_KEEPER,
        old="        topic = self._topics.to_delete(command.topic, command.topic_id)",
        new="        topic = self._topics.to_delete(command.topic, 0)",
        mistake="A deletion that names one topic deletes its successor.",
    ),
    Mutant(
        name="refused-call-is-done-by-its-copy",
        file=_REPEATS,
        old=(
            "        if not (isinstance(answer, common_pb2.ServerError)"
            " and from_wire(answer).retriable):"
        ),
        new="        if not isinstance(answer, common_pb2.ServerError):",
        mistake="A copy of a deletion that was refused deletes when nothing is open any more.",
    ),
)
