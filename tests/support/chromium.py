"""A headless Chromium for the tests of pages: where it is, and what a page did in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
REQUIRED = "AMP_BROWSER"
"""The environment variable that is "required" where a missing browser is a failure."""

LAPTOP = {"width": 1366, "height": 768}

WINDOWS = ((1400, 900), (390, 844))
"""The windows in which pages are looked at: that of a laptop, and that of a phone."""


def screen(window: tuple[int, int], scheme: str) -> dict[str, Any]:
    """Return the settings of a window; a narrow one is that of a phone, which has no mouse."""
    width, height = window
    phone = width < height
    return {
        "viewport": {"width": width, "height": height},
        "color_scheme": scheme,
        "is_mobile": phone,
        "has_touch": phone,
    }


def find_chromium() -> str | None:
    """Return the path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def missing(what: str) -> None:
    """Skip the test for want of something, or fail it where that is required."""
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{what} is missing")
    pytest.skip(f"{what} is missing")


@dataclass
class Opened:
    """A page in the browser (playwright's), its errors and the other addresses it asked for."""

    page: Any
    errors: list[str] = field(default_factory=list[str])
    requests: list[str] = field(default_factory=list[str])


@contextmanager
def opened(browser: Any, path: Path, **settings: Any) -> Iterator[Opened]:
    """Open a file of the disk as a page that says when it is ready.

    Args:
        browser: What playwright has started.
        path: The file.
        **settings: Those of the window, such as `color_scheme`.
    """
    page = browser.new_page(**{"viewport": LAPTOP, **settings})
    found, address = Opened(page), path.as_uri()
    page.on("console", lambda message: found.errors.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: found.errors.append(str(error)))
    page.on("request", lambda request: found.requests.append(request.url))
    try:
        page.goto(address)
        page.wait_for_selector("html[data-ready]", timeout=20_000)
        found.requests.remove(address)
        yield found
    finally:
        page.close()
