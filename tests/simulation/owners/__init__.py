"""A cluster whose shards change owners: members, a directory, and stores that fence."""
