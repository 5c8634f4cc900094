"""History of the protocol in files: each server writes the events of its lives as lines."""
