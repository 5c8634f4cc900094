"""Mistakes about what a disk has damaged."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_READER = "broker/magnetar_broker/log/log_reader.py"
_ENTRIES = "broker/magnetar_broker/log/entries.py"
_SKIP = "broker/magnetar_broker/commands/skip_damaged.py"
_PARTITION = "broker/magnetar_broker/topics/partition.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="stored-checksum-not-asked",
        file=_ENTRIES,
        old="            entries.append(parse_entry(keys.last_u64(key), value, verify=verify))",
        new="            entries.append(parse_entry(keys.last_u64(key), value))",
        mistake="A batch that comes back with a flipped bit is given to clients.",
    ),
    Mutant(
        name="cut-entry-fails-the-reader",
        file=_ENTRIES,
        old="    except (struct.error, DecodeError) as error:",
        new="    except DecodeError as error:",
        mistake="An entry that comes back cut short fails whoever reads it as a bug would.",
    ),
    Mutant(
        name="neighbour-counts-as-damaged",
        file=_READER,
        old="            rows = await self._row_around(offset)\n            if not rows or",
        new="            rows = []\n            if not rows or",
        mistake="An offset within an entry says DataLoss when the entry behind it is damaged.",
    ),
    Mutant(
        name="one-too-many-skipped",
        file=_READER,
        old="        return (offset, at - 1) if at > offset else None",
        new="        return (offset, min(at, end - 1)) if at > offset else None",
        mistake="The first readable offset behind the damage is given up with it.",
    ),
    Mutant(
        name="dry-run-skips",
        file=_SKIP,
        old="    if damaged and not command.dry_run:",
        new="    if damaged:",
        mistake="Who only looks at what is damaged has given it up.",
    ),
    Mutant(
        name="skipped-not-stored",
        file=_PARTITION,
        old="        self.log.skip(ranges)\n        self._environment.defer_rows(self)",
        new="        self.log.skip(ranges)",
        mistake="After a restart, what was given up is DataLoss again.",
    ),
)
