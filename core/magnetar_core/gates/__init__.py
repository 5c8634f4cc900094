"""What a server checks before it handles a command: rights, proofs and quotas; the audit log."""
