"""Mistakes about who clients are: what counts, for how long, and what is read again."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_IDENTITY = "core/magnetar_core/security/identity.py"
_AUTHENTICATION = "core/magnetar_core/security/authentication.py"
_ADMISSION = "core/magnetar_core/security/admission.py"
_TOKENS = "core/magnetar_core/security/tokens.py"
_KEYS = "core/magnetar_core/security/token_keys.py"
_WATCHED = "core/magnetar_core/security/watched_file.py"
_REVOCATIONS = "core/magnetar_core/security/revocations.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="anonymous-by-name",
        file=_IDENTITY,
        old="    if name == ANONYMOUS.name:\n",
        new="    if name is ANONYMOUS:\n",
        mistake="Somebody has a certificate or a token in the name of those who show none.",
    ),
    Mutant(
        name="bad-token-is-anonymous",
        file=_AUTHENTICATION,
        old="            if tokens:\n",
        new="            if tokens and not self._allows_anonymous:\n",
        mistake="Where anonymous is allowed, tokens are not looked at.",
    ),
    Mutant(
        name="token-hides-revoked-machine",
        file=_AUTHENTICATION,
        old="            certificate_serial=machine.certificate_serial,\n",
        new="",
        mistake="A token makes a revoked certificate count again.",
    ),
    Mutant(
        name="revocation-at-the-door-only",
        file=_ADMISSION,
        old="            if complaint is not None:\n",
        new="            if not identity:\n",
        mistake="What is revoked keeps the conversations that it has.",
    ),
    Mutant(
        name="expired-token-counts",
        file=_TOKENS,
        old="        if expires_at_ms <= now_ms:\n",
        new="        if expires_at_ms < now_ms:\n",
        mistake="A token counts for a moment longer than it says.",
    ),
    Mutant(
        name="any-audience",
        file=_TOKENS,
        old='            options={**_OPTIONS, "verify_aud": bool(self._audience)},\n',
        new='            options={**_OPTIONS, "verify_aud": False},\n',
        mistake="A token for another service counts here.",
    ),
    Mutant(
        name="symmetric-token-keys",
        file=_KEYS,
        old='        if one.get("kty") == "oct":\n',
        new='        if one.get("kty") == "octet":\n',
        mistake="A key with which every server can make tokens is taken.",
    ),
    Mutant(
        name="one-key-after-rotation",
        file=_TOKENS,
        old="                # Of several keys without a kid, another one may fit.\n"
        "                continue\n",
        new="                break\n",
        mistake="Of several keys without a name only the first one counts.",
    ),
    Mutant(
        name="damaged-file-empties",
        file=_WATCHED,
        old="            self.content = self._read()\n        except InvalidConfig as error:\n",
        new="            self.content = None  # type: ignore[assignment]\n"
        "            self.content = self._read()\n        except InvalidConfig as error:\n",
        mistake="A damaged list of revocations, or of keys, is no list.",
    ),
    Mutant(
        name="revoked-serials-as-decimal",
        file=_REVOCATIONS,
        old='        return int(text.replace(":", ""), 16)\n',
        new='        return int(text.replace(":", ""), 10)\n',
        mistake="Serials are read in another form than openssl prints them.",
    ),
)
