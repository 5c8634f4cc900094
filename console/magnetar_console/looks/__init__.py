"""Looks at a cluster: each asks the SDK for the contents of a view, and returns rows."""
