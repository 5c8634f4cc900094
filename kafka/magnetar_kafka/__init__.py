"""Listener for Kafka's clients, in a broker's process."""
