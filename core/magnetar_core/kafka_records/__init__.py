"""The records of Kafka's batches: opened to lists, and written from them. Pure.

It knows nothing of Magnetar's own batches, which lie above it. Anyone who may write to a topic
makes batches: what a batch claims is checked before memory is taken, and one that lies is refused.
Source: Apache Kafka's documentation, Message Format; KIP-98.
"""
