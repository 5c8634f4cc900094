"""Histories as data: scripts of steps and faults, which profiles make of scenarios."""
