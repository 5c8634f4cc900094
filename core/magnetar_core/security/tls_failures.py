"""Explains failed TLS handshakes in words that say what to do."""

from __future__ import annotations

_OWN_AUTHORITY = (
    "no authority that this side trusts has signed the server's certificate: name the one that did,"
    " with --tls-ca-file, MAGNETAR_TLS_CA_FILE or TlsFiles(ca_file=...)"
)
_OTHER_NAME = (
    "the server's certificate is for another name: connect to a name that it has, name one with"
    " --tls-server-name, MAGNETAR_TLS_SERVER_NAME or TlsFiles(server_name=...), or give the server"
    " a certificate for this address"
)
_ENDED_TLS = (
    "the server ended the TLS handshake: if it asks for certificates, this side's is missing, has"
    " expired, or is signed by an authority that the server does not trust; name one with"
    " --tls-certificate-file and --tls-key-file, or TlsFiles(certificate_file=..., key_file=...)"
)
# What the library's text contains, and what it means; the first one counts.
_MEANINGS = (
    (
        "WRONG_VERSION_NUMBER",
        "the server talks plain text and this side talks TLS: leave out the options of TLS, or"
        " start the server with tls_certificate_file and tls_key_file",
    ),
    (
        "certificate has expired",
        "the server's certificate has expired: give the server a new one in the same files; it"
        " needs no restart",
    ),
    (
        "certificate is not yet valid",
        "the server's certificate is not valid yet: compare the clocks of both machines",
    ),
    ("issuer certificate", _OWN_AUTHORITY),
    ("self signed", _OWN_AUTHORITY),
    ("self-signed", _OWN_AUTHORITY),
    # Another authority of the same name.
    ("BAD_SIGNATURE", _OWN_AUTHORITY),
    ("signature failure", _OWN_AUTHORITY),
    ("Hostname mismatch", _OTHER_NAME),
    ("IP address mismatch", _OTHER_NAME),
    ("CERTIFICATE_VERIFY_FAILED", "the server's certificate is not trusted"),
    # The server has ended the handshake, or the conversation before it said anything.
    ("_ALERT_", _ENDED_TLS),
    ("UNEXPECTED_EOF", _ENDED_TLS),
    ("[SSL", "the TLS handshake failed"),
)
# The connection has ended without a word.
_ENDED = ("Connection closed", "Connection reset", "Broken pipe")
_ENDED_PLAIN = (
    "the server ended the conversation at once: if it talks TLS, name the authority of its"
    " certificate, with --tls-ca-file, MAGNETAR_TLS_CA_FILE or TlsFiles(ca_file=...)"
)


def meaning_of(reason: str, *, tls: bool) -> str | None:
    """Return why a link to a listening program failed; None: the reason is another one.

    Args:
        reason: the text of the error.
        tls: whether this side talks TLS.
    """
    if tls:
        for text, meaning in _MEANINGS:
            if text.lower() in reason.lower():
                return meaning
    if any(text in reason for text in _ENDED):
        return _ENDED_TLS if tls else _ENDED_PLAIN
    return None
