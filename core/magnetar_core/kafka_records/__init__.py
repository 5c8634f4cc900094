"""The records of Kafka's batches: opened to lists, and written from them. Pure.

Magnetar's own batches lie above this room. Anyone who may write to a topic makes batches: what a
batch claims is checked before memory is taken, and one that lies is refused.
Source: Apache Kafka's documentation, Message Format; KIP-98.
"""
