"""Ownership of shards: who has which, agreed in a directory with leases."""
