"""Which version a server runs, as a metric."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from magnetar_core.version import VERSION


def tell_version(registry: CollectorRegistry) -> None:
    Gauge(
        "magnetar_build_info",
        "Always 1: its label says which version of Magnetar the server runs.",
        ["version"],
        registry=registry,
    ).labels(VERSION).set(1)
