"""Payloads: how the values of a topic become columns. Each format is a module."""
