"""Version of Magnetar's packages, servers and command line."""

VERSION = "0.1.0"
