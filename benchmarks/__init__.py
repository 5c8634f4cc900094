"""Measurements with real processes on loopback: a broker, a coordinator, and one client.

`make bench`, or `python -m benchmarks --help`.
"""
