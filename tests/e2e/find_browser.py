"""Find a Chromium for the tests, or fetch one: its path on stdout, what was done on stderr.

In this order: `TEST_CHROMIUM`, a Chromium or Chrome on the path, one that Playwright downloaded
before. With none of them, `main` tries Debian's package (as root, where there is apt-get) and then
Playwright's download.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ON_PATH = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ON_MAC = (
    Path("/Applications/Chromium.app/Contents/MacOS/Chromium"),
    Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"),
)


class NoBrowser(Exception):  # noqa: N818
    """There is none, and none could be had; the message says what to do."""


def find() -> Path | None:
    """Return the browser that the tests drive, or None; nothing is fetched."""
    named = os.environ.get("TEST_CHROMIUM")
    if named:
        path = Path(shutil.which(named) or named)
        if not path.is_file():
            raise NoBrowser(f"TEST_CHROMIUM is {named}, which is no program.")
        return path
    for name in ON_PATH:
        found = shutil.which(name)
        # A package that only points at a snap is found here as well, and does not start.
        if found and starts(Path(found)):
            return Path(found)
    if sys.platform == "darwin":
        for path in ON_MAC:
            if path.is_file():
                return path
    return downloaded()


def downloaded() -> Path | None:
    """Return the Chromium that Playwright keeps, where it has one."""
    with sync_playwright() as playwright:
        path = Path(playwright.chromium.executable_path)
    return path if path.is_file() else None


def starts(browser: Path) -> bool:
    """Whether the browser runs at all on this machine."""
    return _runs([str(browser), "--version"], timeout_s=60)


def fetch() -> Path:
    """Install a browser by whatever this machine offers, or raise NoBrowser."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if root and shutil.which("apt-get") and platform.system() == "Linux":
        _say("No browser for the tests yet; installing Debian's chromium.")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        apt = ["apt-get", "-qq", "-y"]
        _runs([*apt, "update"], timeout_s=300, env=quiet)
        _runs([*apt, "install", "--no-install-recommends", "chromium"], timeout_s=900, env=quiet)
        found = find()
        if found:
            return found
    _say("No browser for the tests yet; downloading Chromium with Playwright.")
    libraries = ["--with-deps"] if root else []
    command = [sys.executable, "-m", "playwright", "install", *libraries, "chromium"]
    _runs(command, timeout_s=900)
    found = downloaded()
    if found is None:
        raise NoBrowser(
            "No Chromium for the browser tests, and none could be fetched. Install chromium or "
            "google-chrome, or name one: make test TEST_CHROMIUM=/path/to/chrome"
        )
    if not starts(found):
        raise NoBrowser(
            f"{found} does not start; it may lack libraries of the system. Try as root: "
            f"{Path(sys.executable).with_name('playwright')} install-deps chromium"
        )
    return found


def _runs(command: list[str], *, timeout_s: float, env: dict[str, str] | None = None) -> bool:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> int:
    try:
        browser = find() or fetch()
    except NoBrowser as exc:
        _say(str(exc))
        return 1
    _say(f"Browser for the tests: {browser}")
    print(browser)
    return 0


if __name__ == "__main__":
    sys.exit(main())
