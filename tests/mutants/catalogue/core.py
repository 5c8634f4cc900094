"""Mistakes in what all components share."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BATCH = "core/magnetar_core/batch.py"
_COMMANDS = "core/magnetar_core/server/commands.py"
_FRAMES = "core/magnetar_core/transport/frames.py"
_SPLICED = "core/magnetar_core/transport/spliced.py"
_RUN_TIME = "core/magnetar_core/process/run_time.py"
_IDS = "core/magnetar_core/ids.py"
_REPEATS = "core/magnetar_core/server/repeats.py"
_KINDS = "core/magnetar_core/error_kinds.py"
_VERSION = "core/magnetar_core/protocol_version.py"

MUTANTS = (
    Mutant(
        name="limits-asked-again",
        file=_KINDS,
        old="        return self in (ErrorKind.RETRY, ErrorKind.LOOK_UP)",
        new="        return self in (ErrorKind.RETRY, ErrorKind.LOOK_UP, ErrorKind.LIMIT)",
        mistake="What is refused for a limit is asked again at once, until the time is up.",
    ),
    Mutant(
        name="kind-of-later-version-dropped",
        file="core/magnetar_core/errors.py",
        old="        error.kind = kind_from_wire(wire.kind) or error.kind",
        new="        error.kind = ErrorKind.BUG",
        mistake="An error of a later version counts as a bug, whatever its server says.",
    ),
    Mutant(
        name="client-without-version-accepted",
        file=_VERSION,
        old="    if given == ours:\n        return\n    client =",
        new="    if given in (0, ours):\n        return\n    client =",
        mistake="A client that does not say what it speaks is served.",
    ),
    Mutant(
        name="parts-in-reverse",
        file=_BATCH,
        old=(
            "        part = Part.FIRST if number == 0 else Part.LAST if number == last else "
            "Part.MIDDLE"
        ),
        new="        part = Part.FIRST if number == 0 else Part.LAST",
        mistake="Every part of a large message but the first says that it is the last.",
    ),
    Mutant(
        name="hash-of-first-key",
        file=_BATCH,
        old="        if all(key == keys[0] for key in keys):",
        new="        if keys[0] == keys[-1]:",
        mistake="A batch whose first and last keys are alike counts as one of a single key.",
    ),
    Mutant(
        name="claimed-count-not-checked",
        file=_BATCH,
        old="    if header.count > messages_max:",
        new="    if header.count > messages_max and header.codec is not Codec.NONE:",
        mistake="The count that an uncompressed batch declares is not held against the limit.",
    ),
    Mutant(
        name="trailing-bytes-accepted",
        file=_BATCH,
        old="    if count == 0 or len(batch) != OVERHEAD_BYTES + stored_bytes:",
        new="    if count == 0 or len(batch) < OVERHEAD_BYTES + stored_bytes:",
        mistake="Bytes behind the end of a batch are accepted.",
    ),
    Mutant(
        name="failed-handler-silent",
        file=_COMMANDS,
        old=(
            '            log.exception("handler of %s failed", name)\n'
            "            reply.fail(internal_failure())"
        ),
        new='            log.exception("handler of %s failed", name)',
        mistake="A command whose handler fails unexpectedly is never answered.",
    ),
    Mutant(
        name="texts-not-checked",
        file=_COMMANDS,
        old="        check_texts(body)\n",
        new="",
        mistake="Texts of any length reach the handlers.",
    ),
    Mutant(
        name="closed-session-pushes",
        file=_COMMANDS,
        old="        if self.closed:\n            return\n        self._writer.send(body)",
        new="        self._writer.send(body)",
        mistake="What nobody can receive any more is still gathered.",
    ),
    Mutant(
        name="listeners-not-told",
        file=_COMMANDS,
        old="        for listener in listeners:\n            listener.session_closed()",
        new="        for listener in list(listeners)[:1]:\n            listener.session_closed()",
        mistake="Of several consumers on a link that closes, the first one is detached only.",
    ),
    Mutant(
        name="reserve-not-given-back",
        file=_COMMANDS,
        old=(
            "                asyncio.get_running_loop().call_soon(self.answers.give_back, reserved)"
        ),
        new=(
            "                asyncio.get_running_loop().call_soon(self.answers.give_back, "
            "reserved // 2)"
        ),
        mistake="The room that an answer was promised is given back by half.",
    ),
    Mutant(
        name="turns-lose-the-rest",
        file=_FRAMES,
        old="    for start in range(0, len(commands), COMMANDS_AT_ONCE):",
        new="    for start in range(0, len(commands) - 1, COMMANDS_AT_ONCE):",
        mistake="Of a large frame the last command is lost when it stands alone.",
    ),
    Mutant(
        name="second-frame-written-first",
        file=_FRAMES,
        old="        for parts in frames:\n            self._write",
        new="        for parts in reversed(frames):\n            self._write",
        mistake="What does not fit one frame goes out in the wrong order.",
    ),
    Mutant(
        name="commands-behind-pieces-put-before",
        file=_FRAMES,
        old="        last = parts[-1] if parts else None",
        new="        last = next((one for one in parts if isinstance(one, pb.Frame)), None)",
        mistake="A small command goes to the small ones ahead of a large one, and overtakes it.",
    ),
    Mutant(
        name="frame-in-the-order-of-a-map",
        file=_FRAMES,
        old="            pieces.append(part.SerializeToString(deterministic=True))",
        new="            pieces.append(part.SerializeToString())",
        mistake="The same commands become other bytes in another run of a simulation.",
    ),
    Mutant(
        name="piece-counted-without-its-tag",
        file=_SPLICED,
        old="        byte_count += len(before) + size",
        new="        byte_count += size",
        mistake="The length of a message that holds pieces is too small for them.",
    ),
    Mutant(
        name="length-of-two-bytes-a-bit-late",
        file=_SPLICED,
        old="    while number > 0x7F:",
        new="    while number > 0xFF:",
        mistake="A length of 128 to 255 is written as a single byte, which nobody can read.",
    ),
    Mutant(
        name="trace-lost-with-pieces",
        file=_FRAMES,
        old="pb.Command(request_id=request_id, traceparent=traceparent)",
        new="pb.Command(request_id=request_id)",
        mistake="A command in pieces does not say which span sent it.",
    ),
    Mutant(
        name="run-time-set-back",
        file=_RUN_TIME,
        old="        self._start_ms = max(self._start_ms, start_ms)",
        new="        self._start_ms = start_ms",
        mistake="The run time of the last row that is read counts, and not the highest.",
    ),
    Mutant(
        name="topic-id-not-told",
        file=_IDS,
        old=(
            "        return pb.Partition(topic=self.topic, partition=self.partition, "
            "topic_id=self.topic_id)"
        ),
        new="        return pb.Partition(topic=self.topic, partition=self.partition)",
        mistake=(
            "A partition is named without its topic's id: one that was made anew answers for it."
        ),
    ),
    Mutant(
        name="copies-handled-again",
        file=_REPEATS,
        old="            elif key in self._waiting:",
        new="            elif key in self._waiting and self._answers:",
        mistake=(
            "A copy of the first call that comes before its answer has left is a call of its own."
        ),
    ),
    Mutant(
        name="passing-refusal-kept",
        file=_REPEATS,
        old=(
            "        if not (isinstance(answer, common_pb2.ServerError) and "
            "from_wire(answer).retriable):"
        ),
        new="        if answer is not None:",
        mistake="A refusal that asks to be asked again answers every later attempt, too.",
    ),
)
