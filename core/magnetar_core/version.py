"""The version of Magnetar: of its packages, its servers and its command line."""

VERSION = "0.1.0"
