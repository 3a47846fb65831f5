"""A page as one HTML file: styles, scripts and data are in it, and nothing else is loaded."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

_PLACE = re.compile(r"\{\{(\w+)\}\}")
"""Where the template has a place for a text."""

_POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')

_ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
"""What could begin or end something in HTML or an old JavaScript; JSON can spell it otherwise."""


def document(
    body: str,
    data: Mapping[str, Any],
    *,
    title: str,
    styles: Sequence[str],
    scripts: Mapping[str, Sequence[str]],
) -> str:
    """Return the page that shows data.

    The browser is told to run and load nothing but the texts that are put in here: their hashes
    stand in the policy, so that whatever a name in the data holds is never run.

    Args:
        body: The HTML of the body, with a place {{data}} and one for each script.
        data: What JSON can hold.
        title: What the browser calls the page.
        styles: The texts of the style sheets, in order.
        scripts: Place -> the texts of the scripts that go there, in the order in which they rely on
            each other.
    """
    style = "".join(styles)
    programs = {place: "\n".join(texts) for place, texts in scripts.items()}
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src {_hash(style)}; script-src {' '.join(map(_hash, programs.values()))}"
    )
    parts = {"title": title, "policy": policy, "style": style, "data": as_json(data), **programs}
    template = static(__package__ or "", "document.html").replace("{{body}}", body)
    # One pass: what stands in the data is text, even if it looks like a place of the template.
    return _PLACE.sub(lambda place: parts[place[1]], template)


def policy_of(page: str) -> str:
    """Return the policy in a page that `document` made."""
    return _POLICY.findall(page)[0]


def as_json(data: Mapping[str, Any]) -> str:
    """Return data as JSON that may stand inside a script element of HTML."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


def static(package: str, name: str) -> str:
    """Return a file of a package's folder `static`."""
    return (files(package) / "static" / name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
