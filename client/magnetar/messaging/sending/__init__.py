"""Producers: messages become batches, and a sender for each partition delivers them in order."""
