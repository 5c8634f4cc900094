"""Checks of a server before it handles a command: rights, proofs and quotas; the audit log."""
