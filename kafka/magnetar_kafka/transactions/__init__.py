"""Transactions of Kafka's clients: which transaction of ours a request belongs to, and codes."""
