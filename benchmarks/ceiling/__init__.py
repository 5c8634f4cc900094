"""What these libraries can do at the most: the same work without protocol, checks or metrics."""
