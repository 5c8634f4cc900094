"""`magnetar check`: whether what stopped servers have stored is whole."""

from magnetar_cli.check.command import check

__all__ = ["check"]
