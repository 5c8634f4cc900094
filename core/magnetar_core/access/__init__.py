"""Who may do what: principals, what commands need, and grants to principals. Pure."""
