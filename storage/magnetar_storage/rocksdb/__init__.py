"""The engine with RocksDB: rows in a data directory, large values in files beside them."""
