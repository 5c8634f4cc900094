"""Upper bounds of the libraries: the same work without protocol, checks or metrics."""
