"""Groups of Kafka's clients: members, generations, and what is stored of them. Pure."""
