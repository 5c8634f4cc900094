"""Says what to type instead of the options and commands of Kafka, Pulsar and kcat."""

from __future__ import annotations

import difflib
import re

import click

_BROKERS = "name brokers before the command: magnetar --broker HOST:PORT,... {command}"
_CREDENTIALS = (
    "before the command, --tls-ca-file, --token-file and others name files; so do variables such as"
    " MAGNETAR_TOKEN_FILE"
)
_COMMITTED = "readers get committed messages only; `magnetar peek` shows those of open transactions"
_KEYS = "write --key-separator TEXT for keys, or --json for keys, properties and event times"
_PARTITIONS = (
    "a topic gets its partitions when it is created: magnetar topics create TOPIC --partitions N"
)
_RETENTION = "write --retention 7d, or --retention-bytes 10GiB"
_START = (
    "write --from earliest, which is the default, or --from latest; a subscription is moved to an"
    " offset or a time by `magnetar subscriptions seek`"
)

# What to write instead, by what people type. {command} is the command that they typed it after.
EVERYWHERE = {
    **dict.fromkeys(("--bootstrap-server", "--bootstrap-servers", "--broker-list"), _BROKERS),
    **dict.fromkeys(("--brokers", "--service-url", "--admin-url", "--zookeeper", "-b"), _BROKERS),
    **dict.fromkeys(("--command-config", "--producer.config", "--consumer.config"), _CREDENTIALS),
    **dict.fromkeys(("--auth-plugin", "--auth-params", "--config-file"), _CREDENTIALS),
    "--partitions": _PARTITIONS,
}
BY_COMMAND = {
    "consume": {
        **dict.fromkeys(("--group", "--group-id", "-G"), "write --subscription NAME"),
        "--subscription-name": "write --subscription NAME",
        "--subscription-type": "write --type",
        **dict.fromkeys(("--from-beginning", "--offset", "-o"), _START),
        **dict.fromkeys(("--subscription-position", "-p"), _START),
        **dict.fromkeys(("--max-messages", "--num-messages", "--limit"), "write --count N"),
        **dict.fromkeys(("-n", "-c"), "write --count N"),
        **dict.fromkeys(("--timeout-ms", "--exit", "-e"), "write --until-end"),
        **dict.fromkeys(("--property", "--formatter-property", "-K"), _KEYS),
        **dict.fromkeys(("--print-key", "--print-metadata"), _KEYS),
        "--partition": "all partitions are read, and --json tells the partition of each message",
        "--isolation-level": _COMMITTED,
    },
    "produce": {
        **dict.fromkeys(
            ("--message", "--messages", "-m"),
            "messages are lines of the input: echo TEXT | magnetar produce TOPIC",
        ),
        **dict.fromkeys(("--property", "--reader-property", "-K"), _KEYS),
        **dict.fromkeys(("--key", "--header", "--headers", "-k", "-H"), _KEYS),
        **dict.fromkeys(("--compression-codec", "--compression-type", "-z"), "write --codec"),
        **dict.fromkeys(
            ("--acks", "--request-required-acks"),
            "leave it out: a message is confirmed when it is durable",
        ),
    },
    "topics create": {
        "-p": "write --partitions N",
        **dict.fromkeys(("--config", "--add-config"), _RETENTION),
        "--replication-factor": (
            "leave it out: the disk or the object store below keeps the copies, see --store of"
            " `magnetar broker`"
        ),
        "--if-not-exists": "leave it out: exit status 13 says that the topic exists already",
    },
    "topics list": {"--exclude-internal": "leave it out: there are no internal topics"},
}

# Names of commands, by what people type.
COMMANDS = {
    **dict.fromkeys(("ls", "all", "show"), "list"),
    **dict.fromkeys(("rm", "remove", "drop"), "delete"),
    **dict.fromkeys(("add", "new", "create-partitioned-topic"), "create"),
    **dict.fromkeys(("info", "get", "stats"), "describe"),
    **dict.fromkeys(("consumer", "console-consumer", "sub", "read", "tail", "cat"), "consume"),
    **dict.fromkeys(("producer", "console-producer", "pub", "publish", "send"), "produce"),
    "consumer-groups": "groups",
    **dict.fromkeys(("txn", "txns"), "transactions"),
    **dict.fromkeys(("start", "serve", "server", "run"), "standalone"),
    **dict.fromkeys(("status", "ping"), "health"),
}
_NO_COMMAND = re.compile(r"No such command '(.*?)'")


def with_advice(error: click.ClickException) -> click.ClickException:
    """Return an error of usage that says what to type instead; others as they are."""
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return error
    if isinstance(error, click.NoSuchOption):
        advice = _advice_for_option(error.option_name, error.ctx)
    else:
        found = _NO_COMMAND.match(error.message)
        there = _commands_of(error.ctx)
        advice = _advice_for_command(found[1], there, error.ctx.command_path) if found else None
    if advice is None:
        return error
    # Without what click suggests, which goes by likeness alone.
    return click.UsageError(f"{error.message.rstrip('.')}: {advice}", error.ctx)


def _advice_for_option(option: str, ctx: click.Context) -> str | None:
    command = ctx.command_path.partition(" ")[2]
    root = ctx.find_root()
    if ctx is not root and any(option in one.opts for one in root.command.params):
        return f"write it before the command: magnetar {option} ... {command}"
    name = option.lstrip("-")
    if name in _commands_of(ctx):
        return f"it is a command: {ctx.command_path} {name}"
    known = BY_COMMAND.get(command, {}).get(option) or EVERYWHERE.get(option)
    if known is not None:
        return known.format(command=command or "COMMAND")
    arguments = {one.name: one for one in ctx.command.params if isinstance(one, click.Argument)}
    if name in ("topic", "t") and "topic" in arguments:
        return f"the topic follows the command by itself: magnetar {command} TOPIC"
    if name in ("group", "group-id") and "group" in arguments:
        return f"the group follows the command by itself: magnetar {command} GROUP"
    if name in ("format", "output", "J") and any(
        "--json" in one.opts for one in ctx.command.params
    ):
        return "write --json"
    return None


def _commands_of(ctx: click.Context) -> list[str]:
    return ctx.command.list_commands(ctx) if isinstance(ctx.command, click.Group) else []


def _advice_for_command(name: str, there: list[str], path: str) -> str | None:
    known = COMMANDS.get(name)
    likely = [known] if known in there else difflib.get_close_matches(name, there, n=1)
    return f"did you mean `{path} {likely[0]}`?" if likely else None
