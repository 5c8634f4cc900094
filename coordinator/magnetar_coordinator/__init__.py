"""Transaction states, metadata log, identities, expiry and finishing."""
