"""Magnetar's source and sink for Spark beside those of Kafka that come with Spark."""
