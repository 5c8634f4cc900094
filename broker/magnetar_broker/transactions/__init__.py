"""Transactions at a participant: which are open or have ended, and in which order they come."""
