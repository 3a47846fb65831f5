"""The page as a file: names in it are data, and what it may run is known by its hash."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from page_models import BRANCHES, bare_evidence, result_of

import amp_rewrite
from amp_rewrite.page.page_data import page_data
from amp_rewrite.page.render import as_json, render

STATIC = Path(amp_rewrite.__file__).parent / "page" / "static"

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "{{program}}",
    "a\u2028b\u2029c",
    "&lt;b&gt;",
    "\"quotes\" 'and' \\backslash",
]


class Elements(HTMLParser):
    """Collects the texts of scripts and styles by the attributes of their elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[tuple[str, dict[str, str | None], str]] = []
        self.policy = ""
        self._open: tuple[str, dict[str, str | None]] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"] or ""
        self._open = (tag, found) if tag in ("script", "style") else None
        assert not any(name.startswith("on") for name in found)

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.texts.append((*self._open, data))
            self._open = None


def page_of(text: str) -> Elements:
    data = page_data(result_of(BRANCHES), result_of(BRANCHES).report, bare_evidence())
    return Elements(render({**data, "model": text}))


@pytest.mark.parametrize("text", HOSTILE)
def test_data_come_back_as_they_were_and_never_end_their_element(text: str) -> None:
    page = page_of(text)
    (data,) = [t for _, attributes, t in page.texts if attributes.get("id") == "data"]
    assert json.loads(data)["model"] == text
    assert not re.search("[<>&\u2028\u2029]", data)
    assert [tag for tag, _, _ in page.texts] == ["style", "script", "script", "script"]


def test_the_policy_names_what_may_run_by_its_hash_and_nothing_else() -> None:
    page = page_of("m")
    assert page.policy.startswith("default-src 'none'; ")
    for tag, attributes, text in page.texts:
        if attributes.get("id") != "data":
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            directive = next(p for p in page.policy.split("; ") if p.startswith(f"{tag}-src"))
            assert f"'sha256-{digest}'" in directive
    assert "unsafe" not in page.policy
    assert "http" not in page.policy


def test_the_page_names_no_file_and_no_address() -> None:
    template = [(STATIC / name).read_text("utf-8") for name in ("document.html", "page.html")]
    assert set(re.findall(r'(?:src|href)="([^"]*)"', "".join(template))) == {
        *("data:,", "#verdict", "#graph")
    }


def test_what_is_not_a_number_of_json_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        as_json({"a": float("inf")})


VENDOR = STATIC / "vendor"
BUILT = {
    "dagre.min.js": "54a503e346f93ca0bb10abe7999587e037262935687aca45eb4e4b0f64bbb578",
}
LICENCES = ("dagre.min.js.LEGAL.txt",)


def test_the_libraries_are_as_their_authors_built_them() -> None:
    assert {path.name for path in VENDOR.iterdir()} == {*BUILT, *LICENCES, "README.md"}
    for name, expected in BUILT.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == expected
        assert expected in (VENDOR / "README.md").read_text("utf-8")
    for name in LICENCES:
        licence = (VENDOR / name).read_text("utf-8")
        assert "Permission is hereby granted, free of charge" in licence
