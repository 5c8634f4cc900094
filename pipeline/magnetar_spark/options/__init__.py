"""Options of the source and the sink. They have the names of Spark's Kafka source and sink."""
