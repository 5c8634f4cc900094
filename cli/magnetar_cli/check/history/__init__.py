"""`magnetar check --history`: whether servers did what the protocol allows."""
