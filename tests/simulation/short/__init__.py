"""Short histories: 10 to 20 transactions and up to three faults, all of them data."""
