"""Access files: what they grant, and what in them is refused."""

from __future__ import annotations

import pytest

from magnetar_core.access.needs import (
    ADMINISTRATION,
    OPERATIONS_OF,
    SERVERS_ONLY,
    Kind,
    Need,
    Operation,
    Reach,
)
from magnetar_core.access.policy import (
    BUILT_IN_ROLES,
    InvalidPolicy,
    Policy,
    open_policy,
    parse_policy,
)
from magnetar_core.access.principal import ANONYMOUS, Principal
from magnetar_core.access.quotas import Quotas

ALICE, BOB = Principal("alice"), Principal("bob")


def topic(name: str, operation: Operation = Operation.READ) -> Need:
    return Need(operation, Kind.TOPIC, name)


def alice_with(grant: str) -> Policy:
    return parse_policy(f'[principals]\nalice = ["role"]\n[[roles.role]]\n{grant}')


def may(grant: str, need: Need) -> bool:
    return alice_with(grant).rights_of(ALICE).may(need)


def test_what_is_not_granted_is_refused() -> None:
    policy = alice_with('topic = "orders"\nallow = "READ"')
    assert policy.rights_of(ALICE).may(topic("orders"))
    for principal in (BOB, ANONYMOUS, Principal(""), Principal("alice ")):
        assert not policy.rights_of(principal).may(topic("orders"))
    for kind in Kind:
        for operation in Operation:
            allowed = kind is Kind.TOPIC and operation in (Operation.READ, Operation.DESCRIBE)
            need = Need(operation, kind, "orders")
            assert policy.rights_of(ALICE).may(need) is allowed, need


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders", "order", False),
        ("orders", "ORDERS", False),
        ("orders*", "orders", True),
        ("orders*", "orders-2", True),
        ("orders*", "order", False),
        ("*", "", True),
        ("*", "anything", True),
        # A star elsewhere is a star.
        ("a*b", "axb", False),
        ("a*b", "a*b", True),
    ],
)
def test_names_are_literal_or_beginnings(pattern: str, name: str, covered: bool) -> None:
    assert may(f'topic = "{pattern}"\nallow = "READ"', topic(name)) is covered


@pytest.mark.parametrize(
    ("pattern", "beginning", "covered"),
    [
        ("*", "", True),
        ("or*", "orders", True),
        ("orders*", "orders", True),
        ("orders*", "or", False),
        # One name does not cover all that begin with it.
        ("orders", "orders", False),
    ],
)
def test_beginnings_are_covered_by_beginnings(pattern: str, beginning: str, covered: bool) -> None:
    need = Need(Operation.READ, Kind.TOPIC, beginning, Reach.BEGINNING)
    assert may(f'topic = "{pattern}"\nallow = "READ"', need) is covered


@pytest.mark.parametrize("operation", sorted(OPERATIONS_OF[Kind.TRANSACTIONAL_ID]))
def test_two_phase_commit_is_a_right_of_its_own(operation: Operation) -> None:
    need = Need(Operation.TWO_PHASE_COMMIT, Kind.TRANSACTIONAL_ID, "id")
    granted = may(f'transactional_id = "id"\nallow = "{operation}"', need)
    assert granted is (operation is Operation.TWO_PHASE_COMMIT)


def test_only_server_roles_have_what_is_for_servers() -> None:
    for role, grants in BUILT_IN_ROLES.items():
        held = {
            grant.pattern.text
            for grant in grants
            if grant.kind is Kind.CLUSTER and Operation.CLUSTER_ACTION in grant.operations
        }
        assert bool(held) is (role in ("coordinator", "broker"))
        assert held <= set(SERVERS_ONLY)
    policy = parse_policy('[principals]\nalice = ["broker", "admin"]\nbob = "coordinator"')
    ends = Need(Operation.CLUSTER_ACTION, Kind.CLUSTER, SERVERS_ONLY[0])
    assert policy.rights_of(BOB).may(ends)
    assert not policy.rights_of(ALICE).may(ends)


def test_without_a_file_only_servers_have_what_is_for_servers() -> None:
    policy = open_policy(["coordinator-*", "the-broker"])
    ends = Need(Operation.CLUSTER_ACTION, Kind.CLUSTER, SERVERS_ONLY[0])
    for name in ("coordinator-0", "the-broker"):
        assert policy.rights_of(Principal(name)).may(ends)
    for principal in (ALICE, ANONYMOUS, Principal("the-broker-2")):
        rights = policy.rights_of(principal)
        assert not any(
            rights.may(Need(Operation.CLUSTER_ACTION, Kind.CLUSTER, part)) for part in SERVERS_ONLY
        )
        assert rights.may(topic("anything", Operation.DELETE))
        assert rights.may(Need(Operation.ALTER, Kind.CLUSTER, ADMINISTRATION))


def test_servers_of_the_settings_count_beside_those_of_the_file() -> None:
    policy = parse_policy('[principals]\nalice = "admin"').with_servers(["alice", "bob"])
    assert policy.roles_of(ALICE) == ["admin", "coordinator", "broker"]
    assert policy.roles_of(BOB) == ["coordinator", "broker"]


def test_a_star_stands_for_everybody() -> None:
    policy = parse_policy(
        '[principals]\n"*" = "role"\n[[roles.role]]\ntopic = "public"\nallow = "READ"'
    )
    for principal in (ALICE, ANONYMOUS):
        assert policy.rights_of(principal).may(topic("public"))


def test_quotas_are_those_of_the_name_or_of_the_longest_beginning() -> None:
    policy = parse_policy(
        "[quotas]\n"
        '"*" = { open_txns_max = 1 }\n'
        '"al*" = { open_txns_max = 2 }\n'
        '"alice" = { requests_per_second = 3 }\n'
    )
    assert policy.quotas_of(BOB) == Quotas(open_txns_max=1)
    assert policy.quotas_of(Principal("alan")) == Quotas(open_txns_max=2)
    assert policy.quotas_of(ALICE) == Quotas(requests_per_second=3)
    assert parse_policy("").quotas_of(ALICE) == Quotas()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[principals", "is not TOML"),
        ("[users]", "'users'"),
        ('[principals]\nalice = "boss"', "'boss', which does not exist"),
        ("[principals]\nalice = 1", "principal 'alice'"),
        ('[principals]\nalice = [""]', "principal 'alice'"),
        ('[principals]\n"*" = "coordinator"', "not every principal is a server"),
        ('[[roles.admin]]\ntopic = "a"\nallow = "READ"', "built in"),
        ('[roles.role]\ntopic = "a"', "[[roles.role]]"),
        ('[[roles.role]]\nallow = "READ"', "names one of"),
        ('[[roles.role]]\ntopic = "a"\ngroup = "b"\nallow = "READ"', "names one of"),
        ('[[roles.role]]\ntopic = "a"', "allow"),
        ('[[roles.role]]\ntopic = "a"\nallow = []', "allows nothing"),
        ('[[roles.role]]\ntopic = "a"\nallow = "EAT"', "'EAT'"),
        ('[[roles.role]]\ntopic = "a"\nallow = "read"', "'read'"),
        ('[[roles.role]]\ntopic = "a"\nallow = "TWO_PHASE_COMMIT"', "'TWO_PHASE_COMMIT'"),
        ('[[roles.role]]\ntopic = "a"\nallow = "READ"\ndeny = "b"', "'deny'"),
        ("[[roles.role]]\ncluster = true\nallow = 'CLUSTER_ACTION'", "for servers"),
        ('[[roles.role]]\ncluster = "a"\nallow = "ALTER"', "cluster = true"),
        ("[quotas]\nalice = 5", "quotas.'alice'"),
        ("[quotas]\nalice = { requests = 5 }", "'requests'"),
        ("[quotas]\nalice = { open_txns_max = -1 }", "open_txns_max"),
        ("[quotas]\nalice = { open_txns_max = true }", "open_txns_max"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InvalidPolicy) as refusal:
        parse_policy(text)
    assert complaint in str(refusal.value)


def test_rights_stay_the_same_however_many_names_are_asked_for() -> None:
    rights = alice_with('topic = "a*"\nallow = "READ"').rights_of(ALICE)
    for number in range(25_000):
        assert rights.may(topic(f"a{number}"))
        assert not rights.may(topic(f"b{number}"))
    assert len(rights._remembered) <= 10_000
