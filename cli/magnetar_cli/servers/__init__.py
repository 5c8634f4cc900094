"""Commands that run servers, and what keeps those running."""
