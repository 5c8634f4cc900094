"""Metric of the time at which a server's certificate expires, for an alert to renew it."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge

NAME = "magnetar_certificate_expires_timestamp_seconds"


def tell_expiry(registry: CollectorRegistry, certificate_file: str) -> None:
    """Register the metric, for a server that talks TLS.

    Args:
        certificate_file: PEM file of the certificate, read again for each answer: servers take a
            new one without a restart. Empty: the server talks plain text, and has no such metric.
    """
    if not certificate_file:
        return
    gauge = Gauge(
        NAME,
        "When the server's certificate expires, in seconds since the Unix epoch; 0: its file cannot"
        " be read. Only with TLS.",
        registry=registry,
    )
    gauge.set_function(lambda: expires_s(Path(certificate_file)))


def expires_s(certificate_file: Path) -> float:
    """Return when a certificate expires; 0: it cannot be read.

    It is the first one of the file: that of the server. Others are of authorities between.
    """
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    except (OSError, ValueError):
        return 0.0
    return float(certificate.not_valid_after_utc.timestamp())
