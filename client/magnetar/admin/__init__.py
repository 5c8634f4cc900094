"""Calls of administrators, and the descriptions that they get."""
