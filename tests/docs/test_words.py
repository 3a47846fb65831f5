"""Texts for users have plain words: messages, helps, pages, docs and first lines of docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import amp_rewrite as amp

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "amp_rewrite"

INSTEAD: Mapping[str, str] = {
    r"\bleft away\b|\bleav\w* [\w-]+ away\b": "omit",
    r"\bdepart(s|ed|ing)?\b": "differ; the error starts at",
    r"\boff by\b": "error",
    r"\bso many\b": "N",
    r"\balike\b": "equally, the same",
    r"\bfear(s|ed)?\b": "risk, flag",
    r"\ball the same\b": "anyway, still",
    r"\b(does|do) not hold\b": "fail, failed",
    r"\bof its size away\b": "error ... of its size",
    r"\bit is not said\b": "missing",
    r"\bafresh\b": "from the beginning",
    r"\bno news\b": "not reported",
    r"\bfor (want|lack) of\b": "without, because there is no",
    r"\band the like\b|\bor the like\b": "and similar",
    r"\bas far off\b": "the same error",
    r"\bas it came\b": "unchanged",
    r"\bin vain\b": "without success",
    r"\blow type\b": "16-bit type",
    r"\btaken for\b": "read as, counted as",
    r"\bis (that|it) said\b|\bthat is said\b": "the report says so",
}
"""What texts do not say -> what they say instead, as the documentation of other tools does."""

TAKEN = {
    "docs/api.md": "made from docstrings, of which the first lines are looked at here",
}
"""Files that are not looked at, and why."""

MOST_COLUMNS = 150
"""Characters of a line; rows of tables, addresses and commands have as many as they need."""


def found_in(text: str) -> list[str]:
    """Return which of these words are in a text, with what to say instead."""
    return [
        f"{match[0]!r}: say {instead!r}"
        for pattern, instead in INSTEAD.items()
        if (match := re.search(pattern, text, re.IGNORECASE))
    ]


def documents() -> list[str]:
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    names = [path.relative_to(ROOT).as_posix() for path in paths if path.exists()]
    return [name for name in names if name not in TAKEN]


def said_by(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that are no docstrings, with their lines."""
    tree = ast.parse(path.read_text("utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


@pytest.mark.parametrize("name", documents())
def test_a_document_has_plain_words(name: str) -> None:
    lines = (ROOT / name).read_text("utf-8").splitlines()
    assert not [f"{n}: {word}" for n, line in enumerate(lines, 1) for word in found_in(line)]


@pytest.mark.parametrize("name", documents())
def test_a_line_of_a_document_is_short(name: str) -> None:
    is_code, long = False, list[int]()
    for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        is_prose = not (is_code or line.startswith(("|", "`")) or "http" in line)
        long += [number] if is_prose and len(line) > MOST_COLUMNS else []
    assert not long


UNCLEANED: tuple[str, ...] = ()
"""Parts of the package whose docstrings may still begin with "What"."""


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    files = (path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py")))
    asking = re.compile(r'^\s*"""What ', re.MULTILINE)
    texts = {f: (PACKAGE / f).read_text("utf-8") for f in files if not f.startswith(UNCLEANED)}
    assert not [file for file, text in texts.items() if asking.search(text)]


def test_messages_and_helps_have_plain_words() -> None:
    bad = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in said_by(path)
        for word in found_in(text)
    ]
    assert not bad


@pytest.mark.parametrize("suffix", ["*.html", "*.js"])
def test_pages_have_plain_words(suffix: str) -> None:
    own = [p for p in (PACKAGE / "page" / "static").glob(suffix) if ".min." not in p.name]
    assert own
    assert not [f"{p.name}: {word}" for p in own for word in found_in(p.read_text("utf-8"))]


def test_first_lines_of_public_docstrings_have_plain_words() -> None:
    first = {
        name: (getattr(amp, name).__doc__ or "").split("\n")[0]
        for name in dir(amp)
        if name[0] != "_"
    }
    assert not [f"{name}: {word}" for name, line in first.items() for word in found_in(line)]


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("leave --resume away", True),
        ("Where it departs, look", True),
        ("the department of state", False),
        ("off by 0.1", True),
        ("omit --resume", False),
    ],
)
def test_words_are_found_in_other_spellings(text: str, is_found: bool) -> None:
    assert bool(found_in(text)) is is_found
