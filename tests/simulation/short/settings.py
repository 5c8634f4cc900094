"""Constants drawn from the seed: small enough that a short history reaches every edge.

A cursor's chunk has 4,096 offsets, a page of recovery as many rows; no short history would ever
come to the second one. What is drawn here never changes what is right, only how soon code is
reached that handles more than one of something.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

from tests.simulation.planting import replaced
from tests.simulation.short.draft import Draft

# Settings of servers and clients, and what each may be; most of the time they are left alone.
BROKER: dict[str, tuple[Any, ...]] = {
    "tail_bytes_max": (0, 300, 2_000),
    "dispatch_bytes_max": (1, 400, 4_000),
    "key_shared_waiting_max": (1, 5, 20),
    "retention_check_interval_ms": (50, 300),
    "producer_idle_ms_max": (8_000, 20_000),
    "late_txn_ms": (100, 1_000),
}
COORDINATOR: dict[str, tuple[Any, ...]] = {
    "watermark_interval_ms": (50, 200),
    "watermark_listed_age_ms_min": (100, 1_000, 60_000),
    "watermark_ranges_max": (1, 3),
    "recent_outcomes_max": (1, 4),
    "outcome_removal_rows": (1, 2),
    "expiry_check_interval_ms": (20, 500),
    "expiries_per_check_max": (1, 2),
    "run_time_persist_interval_ms": (50, 300),
    "producer_epoch_max": (2, 3, 32_767),
    "takeover_wait_ms": (100, 3_000),
    "answer_deadline_ms": (200, 3_000),
    "reconnect_delay_ms_max": (50, 2_000),
}
CLIENT: dict[str, tuple[Any, ...]] = {
    "request_timeout_ms": (300, 5_000),
    "connect_timeout_ms": (200, 3_000),
    "send_timeout_ms": (150, 700),
    "commit_timeout_ms": (300, 1_000),
    "abort_timeout_ms": (300,),
    "pending_messages_max": (1, 4),
    "backoff_ms_max": (20, 1_000),
}
# Constants of modules. One that a module imports from another stands under both names.
CONSTANTS: dict[tuple[str, ...], tuple[Any, ...]] = {
    (
        "magnetar_broker.log.offset_set:CHUNK_BITS",
        "magnetar_broker.dispatch.acknowledgements:CHUNK_BITS",
    ): (
        8,
        64,
    ),
    ("magnetar_broker.topics.partition:DELETES_BY_KEY_MAX",): (0, 1, 3),
    ("magnetar_broker.topics.partition:BATCH_STARTS_NOTED_MAX",): (0, 1, 2),
    ("magnetar_broker.transactions.producers:RECENT_BATCHES_MAX",): (1, 2),
    (
        "magnetar_broker.log.log_reader:ENTRIES_MAX",
        "magnetar_broker.log.transaction_messages:ROWS_MAX",
    ): (1, 2, 5),
    ("magnetar_broker.recovery:PAGE_ROWS",): (1, 2, 7),
    ("magnetar_broker.topics.retention:ENTRIES_AT_ONCE",): (1, 2, 10),
    ("magnetar_broker.subscriptions.delivery:PAST_CONSUMERS_MAX",): (1, 2),
    ("magnetar_broker.commands.uncommitted:ROWS_AT_ONCE",): (1, 3),
    ("magnetar_core.transport.frames:COMMANDS_AT_ONCE",): (1, 2, 8),
    (
        "magnetar_core.transport.frames:FRAME_BYTES_SOFT_MAX",
        "magnetar_coordinator.ending.end_command_sender:FRAME_BYTES_SOFT_MAX",
    ): (1, 200),
    ("magnetar.messaging.acknowledging.acks:IN_FLIGHT_ACKS_MAX",): (1, 2),
    ("magnetar.messaging.acknowledging.acks:RANGES_PER_COMMAND_MAX",): (1, 2, 5),
    ("magnetar.messaging.receiving.receive_queue:ASSEMBLED_NOTED_MAX",): (1, 4),
    ("magnetar.messaging.acknowledging.acks_in_transactions:AFTER_NOTED_MAX",): (1, 3),
    ("magnetar.messaging.sending.partition_sender:PART_BYTES_MAX",): (64, 256),
    ("magnetar.link.deadlines:FORGOTTEN_MAX",): (1, 8),
    ("magnetar.messaging.consuming.dead_letters:MOVES_MAX",): (1, 2),
    ("magnetar.transactions.outcome_inquiry:RESOLVE_PERIOD_MS",): (50, 200),
    ("magnetar.transactions.outcome_inquiry:EXPIRY_GRACE_MS",): (0, 100),
}


def draw_settings(draft: Draft) -> None:
    """Settle what scenarios have left open; each of them has its ordinary value mostly."""
    random = draft.random
    likely = random.choice((0.0, 0.15, 0.15, 0.4))
    if not likely:
        return
    for kind, choices in (("broker", BROKER), ("coordinator", COORDINATOR), ("client", CLIENT)):
        for name, values in choices.items():
            value = _drawn(random, likely, values)
            if value is not None:
                draft.settings[kind].setdefault(name, value)
    for names, values in CONSTANTS.items():
        value = _drawn(random, likely, values)
        if value is not None:
            for name in names:
                draft.settings["constants"].setdefault(name, value)


def _drawn(random: Random, likely: float, values: tuple[Any, ...]) -> Any:
    # Both are always asked for, so that one choice does not shift all that follow.
    strikes, value = random.random() < likely, random.choice(values)
    return value if strikes else None


@contextmanager
def constants(values: dict[str, Any]) -> Iterator[None]:
    """Put other constants into the modules, for a while."""
    with ExitStack() as stack:
        for name, value in values.items():
            module_name, _, attribute = name.partition(":")
            module = importlib.import_module(module_name)
            if hasattr(module, attribute):
                stack.enter_context(replaced(module, attribute, value))
            if attribute == "CHUNK_BITS":
                for derived, its_value in (
                    ("FULL_CHUNK", (1 << value) - 1),
                    ("CHUNK_BYTES", value // 8),
                ):
                    if hasattr(module, derived):
                        stack.enter_context(replaced(module, derived, its_value))
        yield
