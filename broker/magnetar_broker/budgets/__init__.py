"""Budgets: the memory that transactions, tails and waiting commands may take."""
