"""Requests of viewers by a button: searches and cuts, and actions that are confirmed first."""
