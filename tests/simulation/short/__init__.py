"""Short histories: 10 to 20 transactions, one to three faults, all of them data."""
