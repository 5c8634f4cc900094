"""Subscriptions of a partition: their acks, their rows, and deliveries to consumers."""
