"""Mistakes in the port for Kafka's clients, and in what the broker does for it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import Always, LeaveOut, Never, Put

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "kafka-answers-after-the-lease",
        "magnetar_kafka.answer:Answer.leaving",
        Never("part.shard is not None and not part.shard.may_speak()"),
        "A part of an answer leaves in the name of a shard that another server may have.",
    ),
    Mutant(
        "kafka-waits-for-a-lost-shard",
        "magnetar_kafka.shards:Shard.end",
        LeaveOut("for callback in waiting.values(): ..."),
        "An answer, or a fetch, waits for a shard that is gone.",
    ),
    Mutant(
        "kafka-answers-before-durable",
        "magnetar_kafka.answer:Answer.settle",
        Put("0", "len(late)"),
        "A batch is confirmed before it is durable.",
    ),
    Mutant(
        "kafka-checksum-not-compared",
        "magnetar_kafka.requests.batches:checked_head",
        LeaveOut("check_checksum(records, head)"),
        "A batch that was damaged on its way is stored.",
    ),
    Mutant(
        "kafka-control-batches-are-stored",
        "magnetar_kafka.requests.batches:_check_kind",
        Never("head.attributes & CONTROL"),
        "A client writes a control batch, which readers take for the end of a transaction.",
    ),
    Mutant(
        "kafka-length-not-compared",
        "magnetar_kafka.wire.codec:Input.count_elements",
        Never("count > len(self.data) - self.at or self.elements > ELEMENTS_MAX"),
        "A few bytes claim an array of any length.",
    ),
    Mutant(
        "kafka-earlier-epoch-goes-on",
        "magnetar_broker.topics.partition:Partition.send_in_epoch",
        Never("newest is not None and producer_epoch < newest"),
        "A producer that was replaced appends again.",
        tests=("tests/kafka_clients/test_produce.py",),
    ),
    Mutant(
        "kafka-lead-of-timestamps-forgotten",
        "magnetar_broker.topics.partition:Partition.write_deferred_rows",
        Put("0", "self.log.timestamp_lead_ms"),
        "After a restart a search by time misses timestamps that were ahead.",
        tests=("tests/kafka_clients/test_list_offsets.py",),
    ),
    Mutant(
        "kafka-fetch-sleeps-on",
        "magnetar_broker.log.partition_log:PartitionLog.advance",
        Never("self._waiting"),
        "A fetch that waits is not woken by new messages.",
        tests=("tests/kafka_clients/test_fetch.py",),
    ),
    Mutant(
        "kafka-strangers-are-answered",
        "magnetar_kafka.connection:Connection._next_request",
        Never("api is not None and not api.is_for_strangers"),
        "A client that has not shown who it is reads and writes.",
        tests=("tests/kafka_clients/test_access.py",),
    ),
    Mutant(
        "kafka-withdrawn-right-still-reads",
        "magnetar_kafka.requests.fetch:FetchRequests._read",
        Never("not caller.may(Operation.READ, Kind.TOPIC, one.topic)"),
        "A fetch gets messages of a topic that its principal may not read.",
        tests=("tests/kafka_clients/test_access.py",),
    ),
    Mutant(
        "kafka-connection-changes-its-principal",
        "magnetar_kafka.security.visitor:Visitor.show",
        Never("self.caller is not None and self.caller.principal != identity.principal"),
        "A connection goes on as one principal after another has shown its token.",
        tests=("tests/kafka_clients/test_access.py",),
    ),
    Mutant(
        "kafka-quota-does-not-mute",
        "magnetar_kafka.connection:Connection._next_request",
        LeaveOut("await self._muted(leaving.delay_ms)"),
        "A client that does not wait by itself sends as much as it likes.",
        tests=("tests/kafka_clients/test_access.py",),
    ),
    Mutant(
        "kafka-serves-a-store-that-is-not-accepted",
        "magnetar_kafka.shards:Shard.may_speak",
        Put("True", "self.access.may_serve"),
        "A broker with the wrong store stores and tells messages.",
        tests=("tests/kafka_clients/test_several_shards.py",),
    ),
    Mutant(
        "kafka-deletes-what-is-being-read",
        "magnetar_broker.topics.deletions:delete_before",
        Put("offset", "offset if log.lowest_pin is None else min(offset, log.lowest_pin)"),
        "A reader finds no rows where it reads.",
        tests=("tests/kafka_clients/test_delete_records.py",),
    ),
    Mutant(
        "kafka-first-batch-stays-for-ever",
        "magnetar_broker.topics.retention:oldest_entries",
        Put("entries", "entries if held is None else [held, *entries]"),
        "The batch in which a log begins is never removed.",
        tests=("tests/kafka_clients/test_delete_records.py",),
    ),
    Mutant(
        "kafka-principal-takes-all-places",
        "magnetar_kafka.parking:Parking.take",
        Never("own > self._bytes_max // 2 or self._taken + byte_count > self._bytes_max"),
        "Fetches that wait take any memory.",
        tests=("tests/kafka_clients/test_connection.py",),
    ),
    Mutant(
        "kafka-expired-transaction-goes-on",
        "magnetar_coordinator.metadata.transactional_id:fix",
        Always("keep_epoch"),
        "A client from before KIP-890 goes on after an expiry, and commits a part.",
        tests=("tests/kafka_clients/test_transactions.py", "tests/coordinator/test_kept_epochs.py"),
    ),
    Mutant(
        "kafka-produces-without-adding",
        "magnetar_kafka.requests.transactional_produce:TransactionalProduce.append",
        Put("txn_id is None", "txn_id is None or batch.name in missing"),
        "A client from before KIP-890 writes to a partition that this transaction was not told of.",
        tests=("tests/kafka_clients/test_transactions.py",),
    ),
    Mutant(
        "kafka-sequence-ends-with-the-transaction",
        "magnetar_broker.transactions.producers:Producers.place_in_transactions",
        Never("epoch == known.epoch"),
        "A first batch is lost unnoticed, and one from an earlier transaction is stored.",
        tests=("tests/kafka_clients/test_transactions.py",),
    ),
    Mutant(
        "kafka-lost-messages-commit",
        "magnetar_broker.transactions.transaction_index:_check_ledger",
        Never("end.ledger_id < ledger_id"),
        "A commit succeeds although its messages were lost between Produce and EndTxn.",
        tests=("tests/kafka_clients/test_lost_messages.py",),
    ),
    Mutant(
        "kafka-prepared-transaction-takes-more",
        "magnetar_kafka.transactions.transactions:_check_takes_more",
        Never("known.is_prepared"),
        "An instance that took a prepared transaction over adds to it.",
        tests=("tests/kafka_clients/test_transaction_tools.py",),
    ),
)
