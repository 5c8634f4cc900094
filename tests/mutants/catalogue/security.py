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
_PROOFS = "core/magnetar_core/security/txn_proofs.py"
_PROOF_GATE = "core/magnetar_core/gates/proof_gate.py"

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
        old="        if complaint is not None:\n",
        new="        if not identity:\n",
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
    Mutant(
        name="acks-without-proof",
        file=_PROOF_GATE,
        old='WRITING = frozenset({"send", "publish", "ack"})\n',
        new='WRITING = frozenset({"send", "publish"})\n',
        mistake="Whoever guesses a TxnID acknowledges in its transaction.",
    ),
    Mutant(
        name="unary-calls-without-proof",
        file=_PROOF_GATE,
        old="        proven = None if session is None else self._proven.setdefault(session, {})\n",
        new="        if session is None:\n"
        "            return None\n"
        "        proven = self._proven.setdefault(session, {})\n",
        mistake="Only conversations are asked for a proof.",
    ),
    Mutant(
        name="proved-for-all-conversations",
        file=_PROOF_GATE,
        old="        proven = None if session is None else self._proven.setdefault(session, {})\n",
        new="        proven = self._proven.setdefault(self, {})  # type: ignore[call-overload]\n",
        mistake="A proof that its principal has shown counts for whoever shows it again.",
    ),
    Mutant(
        name="proved-once-for-all",
        file=_PROOF_GATE,
        old="        if proven is not None and proof and proven.get(txn_id) == proof:\n",
        new="        if proven is not None and txn_id in proven:\n",
        mistake="A client that loses the proof works until its link breaks.",
    ),
    Mutant(
        name="proved-with-a-removed-key",
        file=_PROOF_GATE,
        old="            self._proven.clear()\n",
        new="",
        mistake="A key that was removed counts on in conversations that have begun.",
    ),
    Mutant(
        name="proofs-of-all-time",
        file=_PROOF_GATE,
        old="            if len(proven) >= PROVEN_MAX:\n",
        new="            if len(proven) > PROVEN_MAX:\n",
        mistake="A conversation is remembered with one transaction more than it may.",
    ),
    Mutant(
        name="proof-for-anybody",
        file=_PROOFS,
        old="    signed = _PURPOSE + txn_id.to_bytes() + principal.name.encode()\n",
        new="    signed = _PURPOSE + txn_id.to_bytes()\n",
        mistake="A proof that was seen on its way counts for everybody.",
    ),
    Mutant(
        name="last-proof-key-signs",
        file=_PROOFS,
        old="        key_id = next(iter(self.keys))\n",
        new="        key_id = next(reversed(self.keys))\n",
        mistake="A key signs before all servers know it.",
    ),
    Mutant(
        name="acks-lose-the-proof",
        file="client/magnetar/messaging/acks.py",
        old="        self._txn_proof = txn_proof\n",
        new="",
        mistake="Only sends carry on what the coordinator gave.",
    ),
    Mutant(
        name="named-work-loses-the-proof",
        file="client/magnetar/transactions/open_transactions.py",
        old="            identity,\n            txn_proof=reply.txn_proof,\n",
        new="            identity,\n",
        mistake="Only transactions without a name get a proof.",
    ),
)
