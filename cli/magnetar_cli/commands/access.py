"""`magnetar access`: checks an access file, and says what a principal may do by it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from magnetar_cli.types import json_option

if TYPE_CHECKING:
    from magnetar_cli.commands.json_shapes.rows import PrincipalRights, PrincipalRoles, ShownGrant
    from magnetar_core.access.policy import Policy


@click.group()
def access() -> None:
    """Check who may do what."""


@access.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--principal", metavar="NAME", help="Say what this principal may do.")
@json_option
def check(file: Path, principal: str | None, as_json: bool) -> None:
    """Check an access file, as a server would read it. Servers are not asked.

    docs/security.md says what such a file has.
    """
    from magnetar_core.gates.access_file import watched_policy

    policy = watched_policy(str(file)).content
    if principal is None:
        _show_policy(policy, as_json)
    else:
        _show_principal(policy, principal, as_json)


def _show_policy(policy: Policy, as_json: bool) -> None:
    from magnetar_cli.output import print_json, print_table

    rows: list[PrincipalRoles] = [
        {"principal": str(pattern), "roles": list(roles)}
        for pattern, roles in policy.principals.items()
    ]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("PRINCIPAL", "ROLES"),
        [(row["principal"], ", ".join(row["roles"])) for row in rows],
        empty="the file is valid, and grants no rights",
    )


def _show_principal(policy: Policy, name: str, as_json: bool) -> None:
    from magnetar_cli.output import print_json, print_table
    from magnetar_core.access.principal import Principal

    principal = Principal(name)
    grants: list[ShownGrant] = [
        {
            "resource": grant.kind.value,
            "name": str(grant.pattern),
            "operations": sorted(grant.allowed),
        }
        for grant in policy.rights_of(principal).grants
    ]
    if as_json:
        rights: PrincipalRights = {
            "principal": name,
            "roles": list(policy.roles_of(principal)),
            "grants": grants,
            "quotas": policy.quotas_of(principal),
        }
        print_json(rights)
        return
    print_table(
        ("RESOURCE", "NAME", "MAY"),
        [
            (
                str(one["resource"]),
                str(one["name"]),
                ", ".join(one["operations"]),
            )
            for one in grants
        ],
        empty=f"{name} may do nothing",
    )
