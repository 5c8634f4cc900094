"""Who may do what: rules of commands, grants to principals, and the gate that applies both."""
