"""Magnetar beside Kafka and Pulsar: the same work, on the same machine, in turn.

    make bench-peers ARGS="--quick"

`fetch` gets the peers, `kafka`, `pulsar` and `magnetar` start one system each, `rows` says what is
measured, `drive` measures it, and `report` and `pictures` show it.
"""
