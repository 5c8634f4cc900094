"""The log of a partition: its entries in memory and in rows, and how they are read."""
