"""Decisions of a subscription: who gets which message, and what is acknowledged. Pure."""
