"""The topics of a cluster: its first broker keeps them, the other brokers follow it."""
