"""Takes the place of pandas: `[spark]` must not need it."""

raise ImportError("the tests of Spark run without pandas")
