"""Mistakes in the console."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import LeaveOut, Put, Without

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "console-forgets-removed-rows",
        "magnetar_console.feed:_difference",
        Put("[]", "[key for key in old if key not in new]"),
        "Transactions that have ended stay on the page for ever.",
    ),
    Mutant(
        "console-gap-in-changes",
        "magnetar_console.feed:Feed.since",
        Put("self._changes[0][0] - 2", "self._changes[0][0] - 1"),
        "A viewer that is one change too late does not get the full state.",
    ),
    Mutant(
        "console-any-host",
        "magnetar_console.web.guard:Guard._refusal",
        Without("host not in self._hosts"),
        "Another site points its name at this machine, and reads the pages (DNS rebinding).",
    ),
    Mutant(
        "console-any-page",
        "magnetar_console.web.guard:Guard._refusal",
        Without("origin is None"),
        "A request that does not come from a page of the console changes something.",
    ),
    Mutant(
        "console-more-is-lost",
        "magnetar_console.actions:abort",
        Without('body.get("seen") != told["seen"]'),
        "A transaction is aborted with more than the viewer has confirmed.",
    ),
    Mutant(
        "console-forgets-rows-of-the-away",
        "magnetar_console.looks.transactions:TransactionsLook._away_rows",
        Put("set()", "set(unanswered)"),
        "A coordinator dies, and its transactions look as if they had ended.",
    ),
    Mutant(
        "top-obeys-names",
        "magnetar_console.terminal.paint:line",
        Put("one.text", "plain(one.text)"),
        "A client whose name has control characters writes over the terminal of an administrator.",
    ),
    Mutant(
        "console-keeps-asking",
        "magnetar_console.channel:Channel._leave",
        LeaveOut("await self._stop_looking()"),
        "A view without viewers asks the servers for ever.",
    ),
)
