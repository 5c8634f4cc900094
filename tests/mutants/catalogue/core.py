"""Mistakes in the core: frames, batches, streams, leases and rights."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import Compare, LeaveOut, Never, Put, ReturnEarly, Without

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "hash-of-first-key",
        "magnetar_core.batch:encode",
        Without("keys.count(first) == count"),
        "A batch whose first and last keys are alike counts as one of a single key.",
    ),
    Mutant(
        "empty-key-as-none",
        "magnetar_core.batch:encode",
        Never('b"" in keys'),
        "An empty key is read as no key.",
    ),
    Mutant(
        "absent-entries-with-bytes",
        "magnetar_core.batch:_read_bits",
        Never("any(...)"),
        "A batch whose absent entries have bytes is read, each reader in its own way.",
    ),
    Mutant(
        "record-larger-than-it-says",
        "magnetar_core.kafka_records.reading:_read",
        Never("at != end"),
        "A record of Kafka that does not have the size that it says is read.",
    ),
    Mutant(
        "records-open-beyond-the-limit",
        "magnetar_core.kafka_records.decompression:_gzip",
        Put("True", "size <= bytes_max"),
        "A small batch of Kafka takes all memory when it is opened.",
    ),
    Mutant(
        "trailing-bytes-accepted",
        "magnetar_core.batch:read_header",
        Compare("len(batch) != ...", "<"),
        "Bytes behind the end of a batch are accepted.",
    ),
    Mutant(
        "failed-handler-silent",
        "magnetar_core.server.commands:run_handler",
        LeaveOut("reply.fail(internal_failure())"),
        "A command whose handler fails unexpectedly is never answered.",
    ),
    Mutant(
        "run-time-set-back",
        "magnetar_core.process.run_time:RunTime.resume",
        Put("start_ms", "max(...)"),
        "The run time of the last row that is read counts, and not the highest.",
    ),
    Mutant(
        "another-epoch-enters",
        "magnetar_core.server.doors:Doors.enter",
        Put(
            "{key.shard: one for key, one in self._doors.items()}.get(place.shard)",
            "self._doors.get(...)",
        ),
        "A conversation reaches another ownership than the one that was meant.",
    ),
    Mutant(
        "lease-looked-at-when-it-begins",
        "magnetar_core.server.leased:LeasedCommands.accept.write_leased",
        Without("self._may_speak(...)"),
        "A server that slept goes on with its conversations.",
    ),
    Mutant(
        "questions-without-lease",
        "magnetar_core.server.leased:_LeasedLink.write",
        Without("self._may_speak(...)"),
        "A server that slept tells brokers of ends and watermarks.",
    ),
    Mutant(
        "failed-shard-speaks",
        "magnetar_cli.servers.shard_servers:_ShardServer._may_speak",
        Without("not self._failure.done()"),
        "A shard whose store has failed answers from memory that is ahead of it.",
    ),
    Mutant(
        "token-hides-revoked-machine",
        "magnetar_core.security.authentication:Authenticator._by_token",
        Without("certificate_serial=..."),
        "A token makes a revoked certificate count again.",
    ),
    Mutant(
        "expired-token-counts",
        "magnetar_core.security.tokens:TokenVerifier.verify",
        Compare("expires_at_ms <= now_ms", "<"),
        "A token counts for a moment longer than it says.",
    ),
    Mutant(
        "acks-without-proof",
        "magnetar_core.gates.proof_gate:WRITING",
        Without("'ack'"),
        "Whoever guesses a TxnID acknowledges in its transaction.",
    ),
    Mutant(
        "ticket-counts-twice",
        "magnetar_core.transport.stream_offers:StreamOffers._greet",
        Put(
            "self._offers.get((ticket or b'').decode('ascii', 'replace'))", "self._offers.pop(...)"
        ),
        "Whoever has seen a ticket is welcomed with it once more.",
    ),
    Mutant(
        "strangers-without-limit",
        "magnetar_core.transport.stream_offers:StreamOffers._listen",
        Never("len(self._greetings) >= ..."),
        "Any number of connections may wait without a ticket.",
    ),
    Mutant(
        "large-frames-taken",
        "magnetar_core.transport.frame_stream:FrameStream._begin",
        Never("length > self._frame_bytes_max"),
        "A client takes as much of a server's memory as it likes.",
    ),
    Mutant(
        "partial-length-is-lost",
        "magnetar_core.transport.frame_stream:FrameStream._cut",
        LeaveOut("if at < end: ..."),
        "Of a length that the network cuts, the beginning is forgotten.",
    ),
    Mutant(
        "stamps-not-heard",
        "magnetar_core.cuts.hybrid_clock:HybridClock.hear",
        ReturnEarly(),
        "A clock does not move on to what it hears: an effect has a stamp below its cause.",
    ),
    Mutant(
        "columns-cut-to-the-shortest",
        "magnetar_core.transport.columns.column:zipped",
        Put("False", "True"),
        "A value that is missing in a column moves all later ones to other commands.",
    ),
    Mutant(
        "rows-overtaken-by-messages",
        "magnetar_core.transport.frames:FrameWriter.send",
        LeaveOut("self._write_rows()"),
        "A command in columns arrives behind a message that was sent after it.",
    ),
)
