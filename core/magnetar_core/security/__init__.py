"""Transport security and authentication: certificates, tokens, and who somebody is.

Source: docs/design/0011-security.md; docs/security.md tells users.
"""
