"""The audit of topics: what it reads of logs and sidecars, and what it takes for damage."""
