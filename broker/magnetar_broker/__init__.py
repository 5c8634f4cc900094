"""Partitions, sidecar transaction buffers, subscriptions and groups."""
