"""Stands before the real one: what `[spark]` does not bring must not be needed."""

raise ImportError("the tests of Spark run without pandas")
