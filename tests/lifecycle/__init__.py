"""Programs with clients begin, fork and end, as separate processes."""
