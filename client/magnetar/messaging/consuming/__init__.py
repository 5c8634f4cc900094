"""Consumers of a subscription: they take turns at partitions, seek, and move dead letters."""
