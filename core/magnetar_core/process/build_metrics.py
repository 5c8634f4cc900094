"""Metric that tells which version a server runs."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from magnetar_core.version import VERSION


def tell_version(registry: CollectorRegistry) -> None:
    """Register the metric `magnetar_build_info` with the version as its label."""
    Gauge(
        "magnetar_build_info",
        "Always 1: its label says which version of Magnetar the server runs.",
        ["version"],
        registry=registry,
    ).labels(VERSION).set(1)
