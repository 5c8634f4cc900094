"""The classes of magnetar.blocking, written from those of the asyncio client.

Each public member of an asyncio class becomes one of the blocking class of the same name, with the
same arguments, defaults and docstring: a coroutine is waited for on the client's thread, an async
iterator becomes a plain one, what is returned or taken of the client's objects is the blocking one.
"""

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType

from magnetar import client
from magnetar.admin import (
    admin_client,
    groups,
    members,
    named_sequences,
    subscriptions,
    topics,
    transactional_ids,
    transactions,
)
from magnetar.groups import group_consumer
from magnetar.messaging.consuming import consumer
from magnetar.messaging.sending import producer
from magnetar.transactions import transaction, transaction_scope, transactional_producer

FOLDER = "client/magnetar/blocking"

# Members that other modules of the SDK call, on the event loop: not part of the users' interface.
INTERNAL = {
    "Consumer": {"work"},
    "GroupConsumer": {"work"},
    "Producer": {"work"},
    "Transaction": {"work"},
    "TransactionScope": {"work"},
}

# Instance attributes: type and docstring.
ATTRIBUTES = {
    "AdminClient": {
        "topics": ("TopicAdmin", "Administers topics."),
        "subscriptions": ("SubscriptionAdmin", "Administers subscriptions."),
        "groups": ("GroupAdmin", "Administers groups."),
        "transactions": ("TransactionAdmin", "Administers transactions."),
        "transactional_ids": ("TransactionalIdAdmin", "Administers transactional ids."),
        "members": ("MemberAdmin", "Administers members and shards."),
        "named_sequences": ("NamedSequenceAdmin", "Administers names of sequences."),
    },
    "Consumer": {
        "consumer_id": ("int", "Its number at brokers."),
        "subscription": ("str", "The name of the subscription."),
    },
    "GroupConsumer": {
        "consumer_id": ("int", "Its number at brokers."),
        "member_id": ("str", "Its name among the members of the group."),
        "subscription": ("str", "The name of the group."),
    },
    "Producer": {"producer_id": ("int", "Its number at brokers.")},
    "TransactionalProducer": {
        "transactional_id": ("str | None", "The id that its transactions survive it under."),
        "two_phase_commit": ("bool", "Whether its transactions never expire."),
    },
}

# Properties that walk through what the event loop changes.
ON_LOOP = {("GroupConsumer", "assignment"), ("GroupConsumer", "waiting_partitions")}

# Most messages are received and acknowledged without a visit of the client's thread.
RECEIVE = """
    self._loop.check()
    message = self.inner.work.lane.receive()
    return self._loop.wait(self.inner.receive(timeout_s)) if message is None else message
"""
ACK_NOWAIT = """
    self._loop.check()
    if txn not in (None, NOT_GIVEN) or not self.inner.work.lane.acknowledge(messages):
        self._loop.call(lambda: self.inner.ack_nowait(messages, txn=inner_if_given(txn)))
"""

ENTER_BLOCK = """
transaction = self._loop.wait(self.inner.__aenter__())
transaction.work.block.join()
return Transaction(self._loop, transaction)
"""
LEAVE_BLOCK = """
try:
    self._loop.wait(self.inner.__aexit__(kind, error, traceback))
finally:
    self.inner.work.block.leave()
"""

# What is said otherwise than by the rules.
BODIES = {
    ("Consumer", "receive"): RECEIVE,
    ("GroupConsumer", "receive"): RECEIVE,
    ("Consumer", "ack_nowait"): ACK_NOWAIT,
    ("GroupConsumer", "ack_nowait"): ACK_NOWAIT,
    # A visit of the client's thread for each piece, and not for each message.
    ("Client", "read"): """
        for columns in self.read_columns(
            topic, partition, start, end, follow_period_s=follow_period_s, at=at, since=since
        ):
            yield from columns
    """,
    ("Client", "close"): "self._loop.close_after(self.inner.close())",
}

# Types of arguments and results that are others here; what is not named here is the same.
TYPES = {
    "Acknowledging": "Consumer | GroupConsumer",
    "Member": "GroupConsumer",
}
# From where, unless from the module that the asyncio class names.
HELPERS = {"OnPartitions": "magnetar.blocking.facade"}

ITERATORS = re.compile(r"\bAsync(?:Generator|Iterator)\[(.+?)(?:, None)?\]$")


@dataclass(frozen=True)
class Pair:
    """An asyncio class, and the module of the blocking one."""

    source: ModuleType
    name: str
    module: str

    @property
    def kind(self) -> type:
        found: type = getattr(self.source, self.name)
        return found


PAIRS = (
    Pair(transaction, "Transaction", "transaction"),
    Pair(transaction_scope, "TransactionScope", "transaction"),
    Pair(producer, "Producer", "producer"),
    Pair(consumer, "Consumer", "consumer"),
    Pair(group_consumer, "GroupConsumer", "group_consumer"),
    Pair(transactional_producer, "TransactionalProducer", "transactional_producer"),
    Pair(topics, "TopicAdmin", "admin"),
    Pair(subscriptions, "SubscriptionAdmin", "admin"),
    Pair(groups, "GroupAdmin", "admin"),
    Pair(transactions, "TransactionAdmin", "admin"),
    Pair(transactional_ids, "TransactionalIdAdmin", "admin"),
    Pair(named_sequences, "NamedSequenceAdmin", "admin"),
    Pair(members, "MemberAdmin", "admin"),
    Pair(admin_client, "AdminClient", "admin"),
    Pair(client, "Client", "client"),
)
MODULES = tuple(dict.fromkeys(pair.module for pair in PAIRS))
MODULE_OF = {pair.name: f"magnetar.blocking.{pair.module}" for pair in PAIRS}


def plain(docstring: str) -> str:
    """Say the same without asyncio."""
    return re.sub(r"\b(?:async (?=with|for)|await )", "", docstring)


def public_members(pair: Pair) -> Iterator[tuple[str, object, ModuleType]]:
    """The members that both classes have: name, function or property, module of its source."""
    seen = set(INTERNAL.get(pair.name, ()))
    for kind in pair.kind.__mro__[:-1]:
        for name, member in vars(kind).items():
            if name in seen or name.startswith("_"):
                continue
            seen.add(name)
            yield name, member, sys.modules[kind.__module__]


@dataclass
class _Imports:
    """Names that a generated module uses."""

    own: str
    found: dict[str, set[str]] = field(default_factory=dict)

    def add(self, module: str, name: str) -> None:
        if module != self.own:
            self.found.setdefault(module, set()).add(name)

    def text(self) -> str:
        return "\n".join(
            f"from {module} import {', '.join(sorted(names))}"
            for module, names in self.found.items()
        )

    def add_names_of(self, expression: str, source: ModuleType) -> None:
        """Import whatever an annotation or a default names."""
        for node in ast.walk(ast.parse(expression, mode="eval")):
            if isinstance(node, ast.Name):
                self._add_name(node.id, source)

    def _add_name(self, name: str, source: ModuleType) -> None:
        if name in MODULE_OF:
            self.add(MODULE_OF[name], name)
        elif name in HELPERS:
            self.add(HELPERS[name], name)
        elif name == "Iterator":
            self.add("collections.abc", name)
        elif name not in vars(__import__("builtins")):
            self.add(*_origin(name, source))


def _origin(name: str, source: ModuleType) -> tuple[str, str]:
    """Return where a module has a name from; it may import it for types alone."""
    for node in ast.walk(ast.parse(inspect.getsource(source))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module is not None
            and any((alias.asname or alias.name) == name for alias in node.names)
        ):
            return node.module, name
    return source.__name__, name


def _here(annotation: str) -> str:
    """A type as the blocking classes have it."""
    iterated = ITERATORS.match(annotation)
    if iterated:
        return f"Iterator[{iterated[1]}]"
    return re.sub(r"\b\w+\b", lambda found: TYPES.get(found[0], found[0]), annotation)


def _facade_in(annotation: str) -> str | None:
    """The blocking class that a value of this type is wrapped in, or taken out of."""
    names = set(re.findall(r"\w+", annotation)) & MODULE_OF.keys()
    return next(iter(sorted(names)), None)


class _Module:
    """One generated module."""

    def __init__(self, name: str) -> None:
        self._imports = _Imports(f"magnetar.blocking.{name}")
        self._imports.add("magnetar.blocking.facade", "Facade")
        self._classes = [self._class(pair) for pair in PAIRS if pair.module == name]

    def text(self) -> str:
        title = '"""Generated by tools/blocking_facade.py from the asyncio client: `make docs`."""'
        head = f"{title}\n\nfrom __future__ import annotations\n\n{self._imports.text()}\n\n"
        return _formatted(head + "\n\n".join(self._classes))

    def _class(self, pair: Pair) -> str:
        inner = f"Async{pair.name}"
        self._imports.add(pair.source.__name__, f"{pair.name} as {inner}")
        parts = [f"class {pair.name}(Facade[{inner}]):", _docstring(pair.kind, 4)]
        for name, (annotation, about) in ATTRIBUTES.get(pair.name, {}).items():
            value = f"self.inner.{name}"
            if annotation in MODULE_OF:
                self._imports.add(MODULE_OF[annotation], annotation)
                value = f"{annotation}(self._loop, {value})"
            parts.append(
                f"    @property\n    def {name}(self) -> {annotation}:\n"
                f'        """{about}"""\n        return {value}\n'
            )
        for name, member, source in public_members(pair):
            parts.append(self._member(pair, name, member, source))
        return "\n".join([*parts, *self._protocols(pair)])

    def _member(self, pair: Pair, name: str, member: object, source: ModuleType) -> str:
        is_property = isinstance(member, property)
        function = member.fget if isinstance(member, property) else member
        assert inspect.isfunction(function), (pair.name, name)
        definition = _definition(function)
        returns = _here(ast.unparse(definition.returns)) if definition.returns else "None"
        self._imports.add_names_of(returns, source)
        head = f"    @property\n    def {name}" if is_property else f"    def {name}"
        head += f"({self._arguments(definition, source)}) -> {returns}:"
        if (pair.name, name) in BODIES:
            body = textwrap.dedent(BODIES[pair.name, name]).strip()
        elif is_property:
            value = f"self.inner.{name}"
            if (pair.name, name) in ON_LOOP:
                value = f"self._loop.call(lambda: {value})"
            body = f"return {self._wrapped(value, returns)}"
        else:
            body = self._body(name, function, definition, returns)
        return "\n".join([head, _docstring(function, 8), textwrap.indent(body, " " * 8), ""])

    def _arguments(
        self, definition: ast.FunctionDef | ast.AsyncFunctionDef, source: ModuleType
    ) -> str:
        for argument in _all_arguments(definition.args):
            if argument.annotation is not None:
                here = _here(ast.unparse(argument.annotation))
                self._imports.add_names_of(here, source)
                argument.annotation = ast.parse(here, mode="eval").body
        for default in (*definition.args.defaults, *definition.args.kw_defaults):
            if default is not None:
                self._imports.add_names_of(ast.unparse(default), source)
        # Large numbers as they are written.
        return re.sub(r"\b\d{4,}\b", lambda one: f"{int(one[0]):_}", ast.unparse(definition.args))

    def _body(
        self,
        name: str,
        function: object,
        definition: ast.FunctionDef | ast.AsyncFunctionDef,
        returns: str,
    ) -> str:
        called = f"self.inner.{name}({self._passed(definition.args)})"
        if returns.startswith("Iterator["):
            return f"return self._loop.iterate({called})"
        if inspect.iscoroutinefunction(function):
            value = f"self._loop.wait({called})"
        else:
            value = f"self._loop.call(lambda: {called})"
        body = value if returns == "None" else f"return {self._wrapped(value, returns)}"
        if "calls.here(" not in called:
            return body
        self._imports.add("magnetar.blocking.facade", "Calls")
        return f"with Calls() as calls:\n    {body}"

    def _passed(self, arguments: ast.arguments) -> str:
        """The arguments as the asyncio member gets them."""
        passed = [self._unwrapped(one) for one in (*arguments.posonlyargs, *arguments.args)[1:]]
        if arguments.vararg is not None:
            passed.append(f"*{arguments.vararg.arg}")
        passed += [f"{one.arg}={self._unwrapped(one)}" for one in arguments.kwonlyargs]
        if arguments.kwarg is not None:
            passed.append(f"**{arguments.kwarg.arg}")
        return ", ".join(passed)

    def _unwrapped(self, argument: ast.arg) -> str:
        name = argument.arg
        annotation = ast.unparse(argument.annotation) if argument.annotation is not None else ""
        helper = ""
        if "OnPartitions" in annotation:
            helper = "on_a_thread"
        elif annotation.startswith("Callable["):
            return f"calls.here({name})"
        elif annotation == "Consumer | GroupConsumer":
            helper = "inner_or_other"
        elif _facade_in(annotation) is not None:
            helper = "inner_if_given" if "None" in annotation else "inner_of"
        if not helper:
            return name
        self._imports.add("magnetar.blocking.facade", helper)
        return f"{helper}({name})"

    def _wrapped(self, value: str, returns: str) -> str:
        facade = _facade_in(returns)
        if facade is None:
            return value
        if returns == facade:
            return f"{facade}(self._loop, {value})"
        assert returns == f"{facade} | None", returns
        return f"None if (found := {value}) is None else {facade}(self._loop, found)"

    def _protocols(self, pair: Pair) -> Iterator[str]:
        """Iteration, and the `with` block."""
        kind = pair.kind
        if hasattr(kind, "__aiter__"):
            self._imports.add("collections.abc", "Iterator")
            self._imports.add("magnetar.message", "Message")
            self._imports.add("magnetar.errors", "ClientClosed")
            yield (
                "    def __iter__(self) -> Iterator[Message]:\n"
                "        try:\n"
                "            while True:\n"
                "                yield self.receive()\n"
                "        except ClientClosed:\n"
                "            return\n"
            )
        if not hasattr(kind, "__aenter__"):
            return
        closes = "close" in {name for name, _, _ in public_members(pair)}
        enters, entered = pair.name, "return self"
        left = "self._loop.wait(self.inner.__aexit__(kind, error, traceback))"
        if closes:
            left = "self.close()"
        elif pair.name in ("Transaction", "TransactionScope"):
            # The client's thread begins and ends the block, and this thread is in it.
            enters, entered, left = "Transaction", ENTER_BLOCK, LEAVE_BLOCK
        self._imports.add("types", "TracebackType")
        yield f"    def __enter__(self) -> {enters}:\n{textwrap.indent(entered, ' ' * 8)}\n"
        yield (
            "    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,"
            f" traceback: TracebackType | None) -> None:\n{textwrap.indent(left, ' ' * 8)}\n"
        )


def _definition(function: object) -> ast.FunctionDef | ast.AsyncFunctionDef:
    source = textwrap.dedent(inspect.getsource(function))  # type: ignore[arg-type]
    found = ast.parse(source).body[0]
    assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef)
    return found


def _all_arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (one for one in (arguments.vararg, arguments.kwarg) if one is not None)


def _docstring(of: object, indent: int) -> str:
    docstring = plain(inspect.getdoc(of) or "")
    if not docstring:
        return ""
    quotes = 'r"""' if "\\" in docstring else '"""'
    lines = f'{quotes}{docstring}"""' if "\n" not in docstring else f'{quotes}{docstring}\n"""'
    return textwrap.indent(lines, " " * indent)


def _formatted(text: str) -> str:
    name = f"{FOLDER}/generated.py"
    for arguments in (
        ["check", "--quiet", "--select", "I,F401", "--fix-only", "--stdin-filename", name, "-"],
        ["format", "--quiet", "--stdin-filename", name, "-"],
    ):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def module(name: str) -> str:
    """The text of a module of magnetar.blocking."""
    return _Module(name).text()
