"""Transaction coordinator.

Transaction states, metadata log, transactional ids, expiry, finishing.
"""
