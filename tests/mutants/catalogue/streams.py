"""Mistakes about frames that move from gRPC to streams."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FRAMES = "core/magnetar_core/transport/frames.py"
_STREAM = "core/magnetar_core/transport/frame_stream.py"
_OFFERS = "core/magnetar_core/transport/stream_offers.py"
_TAKING = "core/magnetar_core/link/stream_taking.py"
_TRANSPORT = "core/magnetar_core/link/grpc_transport.py"
_SERVER = "core/magnetar_core/server/grpc_server.py"
_SESSION = "core/magnetar_core/server/grpc_session.py"
_TLS = "core/magnetar_core/security/stream_tls.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="ticket-counts-twice",
        file=_OFFERS,
        old='self._offers.pop((ticket or b"").decode("ascii", "replace"), None)',
        new='self._offers.get((ticket or b"").decode("ascii", "replace"))',
        mistake="Whoever has seen a ticket is welcomed with it once more.",
    ),
    Mutant(
        name="ticket-outlives-its-call",
        file=_SERVER,
        old="                offer.withdraw()",
        new="                pass",
        mistake="A ticket is welcomed when nobody waits for it, and is kept for ever.",
    ),
    Mutant(
        name="stream-of-nobody",
        file=_OFFERS,
        old="            self._stream.result().close()",
        new="            pass",
        mistake="A stream that came as its conversation ended stays open for ever.",
    ),
    Mutant(
        name="stopped-servers-converse",
        file=_SERVER,
        old="            await session.wait_closed()",
        new="            pass",
        mistake="What a conversation does at its end comes after its server has stopped.",
    ),
    Mutant(
        name="ports-of-servers-that-do-not-open",
        file=_SERVER,
        old="            await _discard(server)",
        new="            pass",
        mistake="A server that cannot open keeps its port, and may crash its process.",
    ),
    Mutant(
        name="strangers-may-stay",
        file=_OFFERS,
        old="        finally:\n            if not is_taken:",
        new="        finally:\n            if False:",
        mistake="Connections without a ticket stay open.",
    ),
    Mutant(
        name="strangers-without-limit",
        file=_OFFERS,
        old="                if len(self._greetings) >= self._strangers_max:",
        new="                if False:",
        mistake="Any number of connections may wait without a ticket.",
    ),
    Mutant(
        name="strangers-may-send-much",
        file=_OFFERS,
        old="FrameStream(2 * _TICKET_BYTES)",
        new="FrameStream(self._frame_bytes_max)",
        mistake="Memory is taken for the frame of somebody who has no ticket.",
    ),
    Mutant(
        name="streams-in-plain-text-despite-tls",
        file=_SERVER,
        old="        if config.tls_certificate_file:\n            certificate = StreamC",
        new="        if False:\n            certificate = StreamC",
        mistake="With TLS, frames go over the network in plain text.",
    ),
    Mutant(
        name="streams-of-anybody-with-tls",
        file=_TAKING,
        old="            if tls and not has_fingerprint(stream.tls, fingerprint):",
        new="            if tls and stream.tls is None:",
        mistake="Whoever answers at the port is shown the ticket, and then has the conversation.",
    ),
    Mutant(
        name="half-a-fingerprint",
        file=_TLS,
        old="    return hmac.compare_digest(hashlib.sha256(shown).hexdigest(), fingerprint)",
        new="    return hashlib.sha256(shown).hexdigest().startswith(fingerprint)",
        mistake="An offer without a fingerprint is taken, whoever made it.",
    ),
    Mutant(
        name="former-certificates-of-streams",
        file=_OFFERS,
        old="            self._certificate.refresh()\n",
        new="",
        mistake="Streams have a key that was replaced since it is known to others.",
    ),
    Mutant(
        name="earlier-tls-of-streams",
        file=_TLS,
        old="    context.minimum_version = ssl.TLSVersion.TLSv1_3\n",
        new="",
        mistake="Versions of TLS are spoken that nobody needs.",
    ),
    Mutant(
        name="tls-handshakes-without-limit",
        file=_OFFERS,
        old="            async with asyncio.timeout(TAKEN_WITHIN_S):\n"
        "                await asyncio.get_running_loop()",
        new="            async with asyncio.timeout(None):\n"
        "                await asyncio.get_running_loop()",
        mistake="Whoever begins a handshake and does not go on is never shown out.",
    ),
    Mutant(
        name="tls-ends-with-its-own-end",
        file=_STREAM,
        old="            self._transport.write(_END)",
        new="            self._transport.close()",
        mistake="A client that still sends loses the last answers of a server that stops.",
    ),
    Mutant(
        name="streams-offered-unasked",
        file=_SERVER,
        old="if self._streams is not None and stream_wish(context) == self._streams.wish:",
        new="if self._streams is not None:",
        mistake="A client that takes no streams waits for answers that nobody sends.",
    ),
    Mutant(
        name="another-server-welcomes",
        file=_TAKING,
        old="            if await stream.read() != WELCOME:",
        new="            if await stream.read() == b'?':",
        mistake="A client takes any port that accepts connections for its server's.",
    ),
    Mutant(
        name="unreachable-streams-tried-each-time",
        file=_TAKING,
        old="        self._until_s[server] = asyncio.get_running_loop().time() + LEFT_ALONE_S",
        new="        pass",
        mistake="Behind a firewall, each link takes a second longer to begin.",
    ),
    Mutant(
        name="unreachable-streams-for-ever",
        file=_TAKING,
        old="        return now_s < self._until_s.get(server, now_s)",
        new="        return server in self._until_s",
        mistake="A port that was unreachable once is never tried again.",
    ),
    Mutant(
        name="stream-outlives-its-call",
        file=_TRANSPORT,
        old="call_later(LAST_FRAMES_WITHIN_S, self._stream.close)",
        new="call_later(LAST_FRAMES_WITHIN_S, lambda: None)",
        mistake="A conversation goes on after gRPC has noticed that the machine is gone.",
    ),
    Mutant(
        name="call-outlives-its-stream",
        file=_TRANSPORT,
        old="        self._outbox.close()\n        self._call.close()\n        if self._stream",
        new="        self._outbox.close()\n        if self._stream",
        mistake="The server keeps conversations whose clients are gone.",
    ),
    Mutant(
        name="last-answers-lost",
        file=_SESSION,
        old="                await self._carrier.finish(self._config.stop_grace_ms / 1_000)",
        new="                self._carrier.close()",
        mistake="A server that stops drops answers that it has given.",
    ),
    Mutant(
        name="last-answers-lost-to-unread-commands",
        file=_STREAM,
        old="        self._transport.write_eof()",
        new="        self._transport.close()",
        mistake="Who closes with something unread takes back what has not arrived.",
    ),
    Mutant(
        name="addresses-with-ports-of-their-own",
        file=_OFFERS,
        old="                    (str(host), self._port), family=family",
        new="                    (str(host), 0), family=family",
        mistake="Streams of localhost are told at one port, and listen at two.",
    ),
    Mutant(
        name="large-frames-taken",
        file=_STREAM,
        old="        elif length > self._frame_bytes_max:\n            log",
        new="        elif False:\n            log",
        mistake="A client takes as much of a server's memory as it likes.",
    ),
    Mutant(
        name="large-frames-that-arrive-whole-taken",
        file=_STREAM,
        old="if length > end - begin or length > self._frame_bytes_max:",
        new="if length > end - begin:",
        mistake="The limit counts only for frames that arrive in pieces.",
    ),
    Mutant(
        name="memory-taken-for-a-length",
        file=_STREAM,
        old="bytearray(min(length, ROOM_FACTOR * len(arrived)))",
        new="bytearray(length)",
        mistake="A few bytes make a server take as much memory as the largest frame.",
    ),
    Mutant(
        name="silence-never-ends",
        file=_STREAM,
        old="        if self._silent_beats > SILENT_BEATS_MAX and not self._is_paused:",
        new="        if False:",
        mistake="A conversation over a path that loses everything lasts a quarter of an hour.",
    ),
    Mutant(
        name="slow-readers-take-others-for-gone",
        file=_STREAM,
        old="        if self._silent_beats > SILENT_BEATS_MAX and not self._is_paused:",
        new="        if self._silent_beats > SILENT_BEATS_MAX:",
        mistake="A server that is held up disconnects its clients.",
    ),
    Mutant(
        name="silent-sides",
        file=_STREAM,
        old="            transport.write(_NOTHING)",
        new="            pass",
        mistake="Idle conversations end, again and again.",
    ),
    Mutant(
        name="unread-frames-without-limit",
        file=_STREAM,
        old="                self._transport.pause_reading()",
        new="                pass",
        mistake="A client that sends faster than it is served fills the server's memory.",
    ),
    Mutant(
        name="reading-stays-paused",
        file=_STREAM,
        old="                self._transport.resume_reading()",
        new="                pass",
        mistake="A conversation that was held up once stands still.",
    ),
    Mutant(
        name="writers-never-wait",
        file=_STREAM,
        old="        if self._writer is not None:\n            await self._writer\n",
        new="        if self._writer is not None:\n            pass\n",
        mistake="What a client leaves unread is kept where no limit counts it.",
    ),
    Mutant(
        name="frames-share-the-buffer",
        file=_STREAM,
        old="self._arrived(bytes(data[begin:at]))",
        new="self._arrived(cast(bytes, data[begin:at]))",
        mistake="A frame changes when another connection reads.",
    ),
    Mutant(
        name="partial-length-is-lost",
        file=_STREAM,
        old="        if at < end:\n            self._head = bytes(data[at:])\n",
        new="",
        mistake="Of a length that the network cuts, the beginning is forgotten.",
    ),
    Mutant(
        name="frames-without-turns",
        file=_FRAMES,
        old="        self._commands += max(commands, 1)",
        new="        self._commands = max(commands, 1)",
        mistake="A client that sends thousands of frames at once stops everybody else.",
    ),
    Mutant(
        name="a-frame-is-its-bytes",
        file=_STREAM,
        old="        self._unread_bytes += len(frame) + UNREAD_OVERHEAD_BYTES",
        new="        self._unread_bytes += len(frame)",
        mistake="Millions of frames of two bytes lie in memory before a client has to wait.",
    ),
)
