"""Files of a data directory: what they say before RocksDB opens it, and large values."""
