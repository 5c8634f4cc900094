"""Consistent cuts: one moment over all partitions of some topics."""
