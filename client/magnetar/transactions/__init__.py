"""Transactions, those who take part in them, and producers that outlive one."""
