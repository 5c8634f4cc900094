"""Rich's console on standard output, with the errors of `print`."""

from __future__ import annotations

from rich.console import Console

# No line is shortened or wrapped for a narrow terminal: the terminal wraps it, and a name can be
# copied.
LINE_CELLS_MAX = 1 << 16


class OutputConsole(Console):
    """Writes to standard output, without colours where none are wanted."""

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError: what runs commands knows what to do. Rich would exit here."""
        raise


def table_console() -> OutputConsole:
    """Return the console for tables."""
    return OutputConsole(markup=False, highlight=False, emoji=False, width=LINE_CELLS_MAX)
