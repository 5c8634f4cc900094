"""Kafka's wire protocol: which requests there are, and how messages are laid out. Pure."""
