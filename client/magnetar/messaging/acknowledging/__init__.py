"""Acks and nacks of a partition: gathered, sent, repeated, and done in transactions."""
