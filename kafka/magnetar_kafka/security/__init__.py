"""Identities and rights of Kafka's clients, by the settings that the gRPC port has."""
