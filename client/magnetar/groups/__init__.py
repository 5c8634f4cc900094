"""Consumers that share topics as a group, and the loop that processes exactly once."""
