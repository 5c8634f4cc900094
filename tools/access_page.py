"""docs/access.md, from the rules of commands and the built-in roles."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from magnetar_core.access.grants import Rights
from magnetar_core.access.needs import Kind, Need, Reach
from magnetar_core.access.policy import BUILT_IN_ROLES
from magnetar_core.access.principal import Principal
from magnetar_core.access.rules import RULES, Needs, Rule
from magnetar_core.transport.columns.kinds import as_row
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import service_pb2

ROLES = ("admin", "coordinator", "broker")

HEAD = """\
# Rights of each command

What a principal needs for each command, over the stream and over the unary method alike, and which of the built-in roles have it.
[security.md](security.md) says how rights are given, [design/0011-security.md](design/0011-security.md) why they are these. This page is
generated from the rules by which servers decide: `make docs`. Tests ask each command in the name of each role, with each kind of credentials
(`tests/access/test_table.py`, `tests/access/test_credentials.py`).

`topic`, `group` and `transactional_id` are kinds of resources; after them stands the field of the command that names the resource. Subscriptions
are groups, and names of named sequences transactional ids. *Finishes*: it ends what was begun, so that no rate holds it up, and a conversation
that began something may still finish it when its right was withdrawn. *Audited*: the audit log has it.

The rules count after it is known who asks: without good credentials no command is looked at, whatever it is.
"""

TAIL = """
Two things are decided by more than this. A transaction belongs to the principal that began it: EndTxn, DescribeTxn, AddPartitionToTxn and
AddSubscriptionToTxn also ask whose it is. Lists leave out the rows that a principal may not describe.

## Without a command

| method | needs |
|---|---|
| `grpc.health.v1.Health` (Check, Watch) | nothing, no credentials either; with mutual TLS a certificate |
| server reflection | the same |
"""


def page() -> str:
    parts = [HEAD]
    for service, heading in (("Broker", "Brokers"), ("TransactionCoordinator", "Coordinators")):
        methods = service_pb2.DESCRIPTOR.services_by_name[service].methods
        names = {_field_of(one): one.name for one in methods if not one.client_streaming}
        parts.append(f"\n## {heading}\n\n")
        roles = " | ".join(ROLES)
        parts.append(f"| command | needs | {roles} | finishes | audited |\n")
        parts.append("|---|---|" + "---|" * (len(ROLES) + 2) + "\n")
        for name, rule in RULES.items():
            if name in names:
                parts += _rows(names[name], name, rule)
            elif name == "hello" or (service == "Broker" and name in STREAM_ONLY):
                title = _class_of(name).__name__.removeprefix("Command")
                parts += _rows(f"{title} (stream)", name, rule)
    parts.append(TAIL)
    return "".join(parts)


def _field_of(method: MethodDescriptor) -> str:
    return FIELD_OF_BODY[GetMessageClass(method.input_type)]


def _class_of(name: str) -> Any:
    (found,) = [kind for kind, field in FIELD_OF_BODY.items() if field == name]
    return found


# What has no method of its own. The hello belongs to every conversation.
STREAM_ONLY = frozenset(RULES) - {
    _field_of(method)
    for service in service_pb2.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if not method.client_streaming
}


def _rows(title: str, name: str, rule: Rule) -> Iterator[str]:
    for condition, needs in _variants(_class_of(name), rule):
        cells = [f"{title}{condition}", _told(needs)]
        cells += ["yes" if _has(role, needs) else "" for role in ROLES]
        cells += ["yes" if rule.finishing else "", "yes" if rule.administrative else ""]
        yield "| " + " | ".join(cells) + " |\n"


def _variants(kind: Any, rule: Rule) -> Iterator[tuple[str, Needs]]:
    """Yield the needs of a command with all fields, and of those that depend on a field."""
    needs = rule.needs(as_row(_filled(kind)))
    yield "", needs
    for field in kind.DESCRIPTOR.fields:
        if field.type == FieldDescriptor.TYPE_BOOL:
            command = _filled(kind)
            setattr(command, field.name, True)
            changed = rule.needs(as_row(command))
            if changed != needs:
                yield f", `{field.name}`", changed
    empty = rule.needs(as_row(kind()))
    if empty != needs and any(
        need.reach is Reach.ANY for alternatives in empty for need in alternatives
    ):
        yield ", with none of these", empty


def _filled(kind: Any, path: str = "") -> Any:
    """Return a command whose texts are their own names."""
    command = kind()
    for field in command.DESCRIPTOR.fields:
        value: Any
        name = path + field.name + ("[]" if field.is_repeated else "")
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                continue
            value = _filled(GetMessageClass(field.message_type), f"{name}.")
        elif field.type == FieldDescriptor.TYPE_STRING:
            # A pattern needs what it begins with.
            value = f"{name}*" if field.name.endswith("_pattern") else name.replace("[]", "")
        else:
            continue
        if field.is_repeated:
            getattr(command, field.name).append(value)
        elif field.message_type is not None:
            getattr(command, field.name).CopyFrom(value)
        else:
            setattr(command, field.name, value)
    return command


def _told(needs: Needs) -> str:
    told = dict.fromkeys(" or ".join(map(_need, alternatives)) for alternatives in needs)
    return "; ".join(told) or "nothing"


def _need(need: Need) -> str:
    if need.reach is Reach.ANY:
        return f"{need.operation} on any {need.kind}"
    if need.kind is Kind.CLUSTER:
        return f"{need.operation} on the cluster: {need.name}"
    if need.reach is Reach.BEGINNING:
        return f"{need.operation} on each {need.kind} that `{need.name}` may stand for"
    return f"{need.operation} on {need.kind} `{need.name}`"


def _has(role: str, needs: Needs) -> bool:
    rights = Rights(Principal(role), BUILT_IN_ROLES[role])
    return all(any(map(rights.may, alternatives)) for alternatives in needs)
