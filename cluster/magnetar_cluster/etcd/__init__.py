"""The directory in etcd: its rows, its watch, and a client of etcd's API."""
