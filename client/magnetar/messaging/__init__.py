"""Producers, consumers and readers, down to single partitions."""
