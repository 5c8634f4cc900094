"""The members of a cluster: their list, their addresses, and the placement of shards."""
