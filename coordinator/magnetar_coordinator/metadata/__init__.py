"""Transactions, transactional ids and named sequences as they are kept: records. Pure."""
