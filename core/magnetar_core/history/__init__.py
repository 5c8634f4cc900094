"""History of the protocol: what servers do, as events that can be checked against its rules."""
