"""A topic from another by a query: the job, its checkpoint, its output and its progress."""
