"""The directory of a cluster, as members use it: who is there, who owns what, who should."""
