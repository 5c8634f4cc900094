"""Ends of transactions at their participants: links to brokers, end commands, watermarks."""
