"""The engine with SlateDB: rows in an object store."""
