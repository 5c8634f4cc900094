"""Mistakes in the command line."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TYPES = "cli/magnetar_cli/types.py"
_PROGRAM = "cli/magnetar_cli/program.py"
_MEMBERS = "cli/magnetar_cli/servers/standalone_members.py"
_SUPERVISOR = "cli/magnetar_cli/servers/supervisor.py"

MUTANTS = (
    Mutant(
        name="megabytes-of-1024",
        file=_TYPES,
        old='"m": 10**6,',
        new='"m": 1 << 20,',
        mistake="500M is taken for 500 MiB.",
    ),
    Mutant(
        name="every-command-imported-at-once",
        file=_PROGRAM,
        old="import click\n",
        new="import click\nimport magnetar_cli.servers.server_process\n",
        mistake="To show help, all that a server needs is imported.",
    ),
    Mutant(
        name="grown-with-the-same-version",
        file=_MEMBERS,
        old="    return Counts(version=known.version + 1, brokers=brokers",
        new="    return Counts(version=known.version, brokers=brokers",
        mistake="A cluster that has grown cannot be started: its stores saw another list.",
    ),
    Mutant(
        name="servers-watched-when-all-are-ready",
        file=_SUPERVISOR,
        old="        await child.start()\n        await self._watch(child)\n",
        new=(
            "        await child.start()\n"
            "        while not self._all_were_ready:\n"
            "            await asyncio.sleep(0.01)\n"
            "        await self._watch(child)\n"
        ),
        mistake="A broker that dies while coordinators wait for it is not started again.",
    ),
)
