"""Mistakes in the console."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import LeaveOut, Never, Put

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
        Never("host not in self._hosts"),
        "Another site points its name at this machine, and reads the pages (DNS rebinding).",
    ),
    Mutant(
        "console-any-page",
        "magnetar_console.web.guard:Guard._refusal",
        Never("origin is None"),
        "A request that does not come from a page of the console changes something.",
    ),
    Mutant(
        "console-more-is-lost",
        "magnetar_console.asks.plans:carry_out",
        Never('body.get("seen") != plan.seen'),
        "Something else is carried out than the viewer has confirmed.",
    ),
    Mutant(
        "console-state-of-another-program",
        "magnetar_console.asks.two_phase:plan_decision",
        LeaveOut("await _check_earlier(client, name, state, text)"),
        "The state of another program is pasted by mistake, and what its database has committed is"
        " aborted.",
    ),
    Mutant(
        "console-items-without-content",
        "magnetar_console.looks.avro:_Schema._reader",
        Never('self._is_empty(part["items"], space, ())'),
        "A message of nine bytes declares as many items as it likes, and the console has no memory"
        " left.",
    ),
    Mutant(
        "console-peeks-always",
        "magnetar_console.looks.messages:MessagesLook._look_into_sidecar",
        Never("written == self._written"),
        "An open page fills the audit log of the servers.",
    ),
    Mutant(
        "console-rows-of-the-away-look-present",
        "magnetar_console.looks.transactions:TransactionsLook._with_age",
        Put("row", """{**row, "as_of_ms": self._answered_ms[txn_id.tcid]}"""),
        "A coordinator dies, and its transactions look as if they were seen just now.",
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
