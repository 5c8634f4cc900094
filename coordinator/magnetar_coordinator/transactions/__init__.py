"""Decisions about transactions and transactional ids, over tables in memory."""
