"""The requests of Kafka's clients: what each does at the broker, and what is answered."""
