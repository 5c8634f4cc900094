"""Mistakes in the engine whose rows lie in an object store."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STORE = "storage/magnetar_storage/slatedb/engine.py"
_OPENING = "storage/magnetar_storage/slatedb/opening.py"
_BACKGROUND = "storage/magnetar_storage/slatedb/background.py"
_READS = "storage/magnetar_storage/slatedb/reads.py"
_FAMILIES = "storage/magnetar_storage/slatedb/families.py"
_BINDING = "storage/magnetar_storage/slatedb/binding.py"
_OPTIONS = "storage/magnetar_storage/slatedb/options.py"
_CHECK = "storage/magnetar_storage/object_store/check.py"
_OBJECTS = "storage/magnetar_storage/object_store/objects.py"
_END = "storage/magnetar_storage/slatedb/end.py"
_MARKS = "storage/magnetar_storage/mark_updates.py"

MUTANTS = (
    Mutant(
        name="object-store-sync-of-nothing",
        file=_STORE,
        old="                await self._database.flush_with_options(LOG)\n",
        new="                await asyncio.sleep(0)\n",
        mistake="A group counts as durable when SlateDB has it in memory.",
    ),
    Mutant(
        name="object-store-flushes-by-itself",
        file=_OPTIONS,
        old='        "flush_interval": None,\n',
        new='        "flush_interval": "1ms",\n',
        mistake="SlateDB flushes each millisecond, and a group is more than one object.",
    ),
    Mutant(
        name="object-store-keys-stay",
        file=_STORE,
        old=(
            "                delete(raw, place.rows + key)\n"
            "                if place.keys is not None:\n"
            "                    delete(raw, place.keys + key)\n"
        ),
        new="                delete(raw, place.rows + key)\n",
        mistake="The key of a deleted payload stays, and walks over keys meet it.",
    ),
    Mutant(
        name="object-store-range-spares-its-batch",
        file=_STORE,
        old=(
            "                of_family.update("
            "(one, None) for one in of_family if key <= one < value)\n"
        ),
        new="",
        mistake="A range spares rows that the same batch set before it.",
    ),
    Mutant(
        name="object-store-range-reads-payloads",
        file=_FAMILIES,
        old="        return self.rows if self.keys is None else self.keys\n",
        new="        return self.rows\n",
        mistake="All payloads of a range are read to delete them.",
    ),
    Mutant(
        name="object-store-idle-owner-is-not-told",
        file=_BACKGROUND,
        old="            if reason is not None:\n",
        new="            if reason is uniffi.CloseReason.PANIC:\n",
        mistake="An idle broker goes on answering when another one owns its store.",
    ),
    Mutant(
        name="object-store-two-answer-for-a-second",
        file=_OPENING,
        old="    await asyncio.sleep(OWNER_KNOWS_SECONDS)\n",
        new="",
        mistake="A new owner serves while the one before does not know of it yet.",
    ),
    Mutant(
        name="object-store-close-is-not-noted",
        file=_OPENING,
        old="    slate_binding.put(batch, _OWNER_KEY, _CLOSED)\n",
        new="    slate_binding.put(batch, _OWNER_KEY, _OPEN)\n",
        mistake="Every start takes as long as one after a kill.",
    ),
    Mutant(
        name="object-store-replay-without-bound",
        file=_BACKGROUND,
        old="        if self._groups >= self._groups_max and (",
        new="        if self._groups == self._groups_max and (",
        mistake="Rows go to tables once, by an off-by-one of the first group, or never.",
    ),
    Mutant(
        name="object-store-conditions-not-tried",
        file=_CHECK,
        old="    await _check_conditions(objects, url, found)\n",
        new="",
        mistake="An object store that ignores conditions is taken for one that keeps them.",
    ),
    Mutant(
        name="object-store-beside-other-objects",
        file=_CHECK,
        old="        await _check_empty(objects, url)\n",
        new="",
        mistake="SlateDB begins a store in a directory of RocksDB.",
    ),
    Mutant(
        name="object-store-refusals-are-waited-out",
        file=_OBJECTS,
        old="            if isinstance(error, _FINAL) or _FINAL_STATUS.search(str(error)):\n",
        new="            if isinstance(error, NotImplementedError):\n",
        mistake="A server with wrong credentials waits for ever, as if the object store were away.",
    ),
    Mutant(
        name="object-store-readable-rows-are-lost",
        file=_READS,
        old="                if one_by_one or is_closed(error):\n",
        new="                if part or is_closed(error):\n",
        mistake="Rows before a damaged block count as unreadable, too.",
    ),
    Mutant(
        name="object-store-parts-without-bound",
        file=_READS,
        old="                part = max(1, min(_ROWS_MAX, bytes_limit // mean_bytes))\n",
        new="                part = _ROWS_MAX\n",
        mistake="A thousand large rows come at once, and take a gigabyte.",
    ),
    Mutant(
        name="object-store-variables-of-others",
        file=_OPTIONS,
        old="        del os.environ[name]\n",
        new="        os.environ[name] = hidden[name]\n",
        mistake="A variable such as REGION or TOKEN sends SlateDB elsewhere.",
    ),
    Mutant(
        name="object-store-rows-that-expire",
        file=_BINDING,
        old="            at += _TIME_BYTES\n",
        new="            at += 0\n",
        mistake="A row with a time of expiry shifts all rows after it.",
    ),
    Mutant(
        name="object-store-gap-in-the-log",
        file=_END,
        old="            if number != expected:\n",
        new="            if number < expected:\n",
        mistake="SlateDB takes a missing object of the log for its end, and fences in its place.",
    ),
    Mutant(
        name="object-store-mark-of-the-last-second",
        file=_MARKS,
        old="        while self._durable_sequence() != self._written:\n",
        new="        if self._durable_sequence() != self._written:\n",
        mistake="Groups that follow a mark within its second are named by no mark.",
    ),
)
