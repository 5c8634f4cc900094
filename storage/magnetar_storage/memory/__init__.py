"""The engine in memory: simulations and tests use it."""
