"""`magnetar backup` and `magnetar restore`."""
