"""Transport security and authentication: certificates, tokens, and the identities of clients.

Source: docs/design/0011-security.md; docs/security.md tells users.
"""
