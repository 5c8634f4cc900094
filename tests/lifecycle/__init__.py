"""How programs with clients begin, fork and end, as processes of their own."""
