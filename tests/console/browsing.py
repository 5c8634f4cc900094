"""A real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
# Checks pages for people who use a screen reader, or no mouse. npm has it.
AXE_VERSION: Final = "4.11.1"
_KEPT: Final = Path(__file__).parents[2] / ".venv" / ".axe"

# Notes violations of the content policy, which the console of the browser tells as text only.
_WATCH: Final = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


@contextmanager
def browsing() -> Iterator[Browser]:
    """Run a browser."""
    with sync_playwright() as playwright:
        # The tests may run as root, for which Chromium has no sandbox.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, and all that its browser complains about.

    Attributes:
        complaints: errors of scripts, violations of the content policy, and other errors.
        requests: the addresses that the page has asked for.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        context.add_init_script(_WATCH)
        self.page: Page = context.new_page()
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("console", self._on_console)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _on_console(self, message: Any) -> None:
        # The page shows what servers refuse; the browser notes the status of the answer as well.
        if message.type in ("error", "warning") and "status of 409" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    def violations(self) -> list[str]:
        """Return the violations of the content policy so far."""
        found: list[str] = self.page.evaluate("window.violations")
        return found

    def check(self) -> None:
        """Fail if the browser has complained."""
        assert (self.violations(), self.complaints) == ([], [])


@contextmanager
def watched(browser: Browser, **settings: Any) -> Iterator[Watched]:
    """Open a page in a context of its own, and check at the end what the browser says of it."""
    context = browser.new_context(locale="en-GB", timezone_id="Europe/Berlin", **settings)
    try:
        page = Watched(context)
        yield page
        page.check()
    finally:
        context.close()


def axe_source() -> str | None:
    """Return the program that checks accessibility; None: npm cannot fetch it."""
    kept = _KEPT / f"axe-{AXE_VERSION}.js"
    if kept.exists():
        return kept.read_text()
    npm = shutil.which("npm")
    if npm is None:
        return None
    _KEPT.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(
        [npm, "pack", "--silent", f"axe-core@{AXE_VERSION}"],
        cwd=_KEPT,
        capture_output=True,
        check=False,
    )
    archive = _KEPT / f"axe-core-{AXE_VERSION}.tgz"
    if packed.returncode or not archive.exists():
        return None
    with tarfile.open(fileobj=BytesIO(archive.read_bytes())) as files:
        found = files.extractfile("package/axe.min.js")
        assert found is not None
        kept.write_bytes(found.read())
    archive.unlink()
    return kept.read_text()
