"""Deterministic simulation: the real SDK, coordinator and broker under one clock and one seed."""
