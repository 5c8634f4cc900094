"""Who a client of Kafka is, and what it may do: as at the gRPC port."""
