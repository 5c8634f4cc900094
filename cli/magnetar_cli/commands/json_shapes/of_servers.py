"""Types of what commands that need the packages of servers print with `--json`."""

from __future__ import annotations

from typing import Any

from magnetar_cli.backup.files import Contents
from magnetar_cli.check.checking import CheckedStores
from magnetar_cli.check.history.judging import Report as JudgedHistories
from magnetar_cli.cluster.picture import MemberPicture, ShardPicture
from magnetar_cli.commands.configuration import Setting
from magnetar_cli.commands.json_shapes.rows import PrincipalRights, PrincipalRoles

SHAPES: dict[str, Any] = {
    "access check": list[PrincipalRoles] | PrincipalRights,
    "backup": Contents,
    "check": CheckedStores | JudgedHistories,
    "cluster members": tuple[MemberPicture, ...],
    "cluster shards": tuple[ShardPicture, ...],
    "config show": list[Setting],
}
