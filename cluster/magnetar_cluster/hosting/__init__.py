"""A member's part: its lease, its decisions about shards, and what carries them out."""
