"""Messages from a partition: its receiver with queue and permits, and readers of ranges."""
