"""Access rights: principals, the rights that commands need, and grants to principals. Pure."""
