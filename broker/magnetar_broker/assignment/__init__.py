"""Decisions of a group: its members, and the owner of each partition. Pure."""
