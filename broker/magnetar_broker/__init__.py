"""Broker: partitions, sidecar transaction buffers, subscriptions and groups."""
