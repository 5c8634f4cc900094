"""Producers, consumers and readers, down to single partitions; sets of offsets for all of them."""
