"""The demo: a year of flights in transactions, while workers and servers are killed."""
