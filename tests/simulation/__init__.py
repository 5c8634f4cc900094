"""Deterministic simulation of the real SDK, coordinator and broker, with a clock and a seed."""
