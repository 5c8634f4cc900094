"""Groups of consumers: their rows, timers, conversations and commands."""
