"""Commands that ask a cluster, a module each."""
