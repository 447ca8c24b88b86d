"""Take the pictures of the README from a running daemon.

    python docs/screenshots/make.py [--url http://127.0.0.1:8420] [--mind sentinel] [--cycle 12]

Comes in by one-time links, for a token that `noemactl token create --local` makes unless --token
gives an administrator's, and picks the cycle that shows most, unless --cycle names it. Needs a mind
that has thought for a while; the demo at SPEED=50 has after a minute. --query is what the picture
of the memories searches for.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
WIDE: Final = (1440, 900)
NARROW: Final = (360, 780)
# Few enough candidates that all of them fit the picture, enough to choose from.
_SHOWN: Final = 8


def new_token() -> str:
    """Return a token from the database of this machine."""
    program = Path(sys.executable).with_name("noemactl")
    command = [str(program), "token", "create", "--local", "--name", "screenshots"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout.strip()


def new_link(http: httpx.Client) -> str:
    """Return the path of a link that lets one browser in."""
    url = httpx.URL(http.post("/v1/login-links").raise_for_status().json()["url"])
    return url.raw_path.decode()


def browser_path() -> str:
    """Return the browser that the tests use."""
    script = ROOT / "tests/e2e/find_browser.py"
    command = [sys.executable, str(script)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return done.stdout.strip()


def count(value: Any) -> int:
    """Return how many, from a number or from the list itself."""
    return len(value) if isinstance(value, list) else int(value or 0)


def best_cycle(http: httpx.Client, mind: str) -> int:
    """Return the number of the newest cycle that had something to choose from."""
    found = http.get(f"/v1/minds/{mind}/cycles", params={"limit": 200}).raise_for_status().json()
    cycles = found["items"]
    if not cycles:
        sys.exit(f"{mind} has not thought yet.")
    chosen = min(
        cycles,
        key=lambda c: (
            not count(c["admitted"]),
            abs(count(c["candidates"]) - _SHOWN),
            -int(c["number"]),
        ),
    )
    return int(chosen["number"])


@contextmanager
def signed_in(
    browser: Browser, http: httpx.Client, *, scheme: Any, size: tuple[int, int]
) -> Iterator[Page]:
    """Yield a page of a browser that is signed in, in that theme and size."""
    context = browser.new_context(
        base_url=str(http.base_url),
        color_scheme=scheme,
        viewport={"width": size[0], "height": size[1]},
        # A wide picture is shown smaller than it is; a narrow one is not.
        device_scale_factor=1 if size == WIDE else 2,
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.goto(new_link(http))
        page.wait_for_url(lambda to: "/login" not in to)
        yield page
    finally:
        context.close()


def take(page: Page, path: str, name: str) -> None:
    """Write a picture of the page at that path."""
    # A live page never comes to rest, so the network cannot tell when it is ready.
    page.goto(path, wait_until="load")
    page.wait_for_selector("main h1, main table, main .empty")
    page.evaluate("document.fonts.ready.then(() => true)")
    target = HERE / f"{name}.png"
    page.screenshot(path=target, animations="disabled")
    sys.stdout.write(f"{target.relative_to(ROOT)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the pictures of the README.")
    parser.add_argument("--url", default="http://127.0.0.1:8420")
    parser.add_argument("--token")
    parser.add_argument("--mind", default="sentinel")
    parser.add_argument("--cycle", type=int)
    parser.add_argument("--query", default="what happened to the disk")
    options = parser.parse_args()
    token = options.token or new_token()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=options.url, headers=headers, trust_env=False) as http:
        cycle = options.cycle or best_cycle(http, options.mind)
        shoot(http, pages_of(http, options.mind, cycle, options.query))


def pages_of(http: httpx.Client, mind: str, cycle: int, query: str) -> dict[str, str]:
    """Return the address of every picture by its name."""
    at = f"/minds/{mind}"
    return {
        "minds": "/",
        "mind": at,
        "cycle": f"{at}/cycles/{cycle}",
        "tuning": f"{at}/tuning",
        "memories": f"/memories?{httpx.QueryParams(q=query, status='all')}",
        "memory": longest_chain(http),
        "graph": "/graph",
        "conflicts": "/conflicts",
        "memory-policy": "/memory-policy",
    }


def longest_chain(http: httpx.Client) -> str:
    """Return the page of the newest memory that has superseded another, or of the newest."""
    found = http.get("/v1/mem/memories", params={"limit": 200}).raise_for_status().json()["items"]
    if not found:
        sys.exit("Nothing is remembered yet: noemactl mem import, or mem write, first.")
    chosen = next((m for m in found if m["supersedes"] and not m["valid_to"]), found[0])
    return f"/memories/{chosen['id']}"


def shoot(http: httpx.Client, pages: dict[str, str]) -> None:
    """Take every picture, in both themes."""
    with sync_playwright() as playwright:
        # Root has no sandbox to start; only our own pages are opened.
        browser = playwright.chromium.launch(
            executable_path=browser_path(), args=["--no-sandbox", "--hide-scrollbars"]
        )
        try:
            for scheme in ("light", "dark"):
                with signed_in(browser, http, scheme=scheme, size=WIDE) as page:
                    for name, path in pages.items():
                        take(page, path, f"{name}-{scheme}")
            with signed_in(browser, http, scheme="light", size=NARROW) as page:
                take(page, pages["mind"], "mind-narrow")
                take(page, pages["memories"], "memories-narrow")
        finally:
            browser.close()


if __name__ == "__main__":
    main()
