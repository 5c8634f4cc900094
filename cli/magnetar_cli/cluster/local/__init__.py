"""A cluster whose owners change, on one machine: etcd, an object server, and Magnetar."""
