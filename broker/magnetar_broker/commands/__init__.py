"""Commands of clients and administrators: handlers of sends, consumers, reads and views."""
