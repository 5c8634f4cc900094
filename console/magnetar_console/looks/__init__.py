"""Looks at a cluster: each asks the SDK for what one view shows, and returns rows."""
