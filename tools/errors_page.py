"""docs/errors.md, from the errors in the code and the command line's exit statuses."""

from magnetar import errors as client_errors
from magnetar_cli.errors import STATUS_OF_KIND
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import ERROR_OF_CODE, MagnetarError
from magnetar_core.wire import common_pb2

HEAD = """\
# Errors

Each error has a *kind*, which says what a program does next: `error.kind` in Python (`magnetar.ErrorKind`), `kind` of a
`ServerError` on the wire, the exit status of the command line. Its name and its message say what went wrong, `details` has
facts for programs. [design/0006-errors.md](design/0006-errors.md) says why. This page is generated: `make docs`.

The SDK repeats RETRY and LOOK_UP by itself until its time is up, so a program that meets one of these has waited already.

## Kinds

| kind | what to do | exit status |
|---|---|---|
"""

TAIL = """
What fails without an error of this page exits with 1, wrong usage with 2, `magnetar transactions find-hanging` with 3 where it
finds something, and a server that had to stop, because it could not write, with 70. A command that a signal ends exits with 128
and the number of the signal: 130 after Ctrl-C, 143 after SIGTERM.
"""


def page() -> str:
    parts = [HEAD]
    parts += [f"| {kind.name} | {kind.value} | {STATUS_OF_KIND[kind]} |\n" for kind in ErrorKind]
    parts.append(TAIL)
    for title, errors in (
        ("Errors of servers", [ERROR_OF_CODE[code] for code in sorted(ERROR_OF_CODE)]),
        ("Errors that only the SDK raises", _of_client()),
    ):
        parts.append(f"\n## {title}\n\n")
        parts.append("| error | kind | what happened | what to do | code | gRPC status |\n")
        parts.append("|---|---|---|---|---|---|\n")
        parts += [_row(error) for error in errors]
    return "".join(parts)


def _of_client() -> list[type[MagnetarError]]:
    return [
        one
        for one in vars(client_errors).values()
        if isinstance(one, type)
        and issubclass(one, MagnetarError)
        and one.__module__ == client_errors.__name__
    ]


def _row(error: type[MagnetarError]) -> str:
    code = common_pb2.ErrorCode.Name(error.code) if "code" in vars(error) else ""
    return (
        f"| {error.__name__} | {error.kind.name} | {error.happened} | {error.advice} |"
        f" {code} | {error.grpc_status} |\n"
    )
