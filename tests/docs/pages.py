"""README.md, CONTRIBUTING.md and docs/: their code blocks, headings and links.

A comment in front of a code block says how the tests treat it; readers do not see it:

    <!-- not run: REASON -->      the block stays as it is; test_docs.py lists these blocks
    <!-- needs: MODULE ... -->    the block runs where these can be imported
    <!-- file: NAME -->           the block is written to a file, which later blocks read
    <!-- arguments: A B -->       what sys.argv[1:] is for a Python block
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))

_START = Token("start", "", 0)
_DIRECTIVE = re.compile(r"<!-- (not run|needs|file|arguments): (.*?) -->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced code block.

    The directive is "not run", "needs", "file" or "arguments", with a value; "" for other blocks.
    """

    page: Path
    section: str
    line: int
    language: str
    text: str
    directive: str
    value: str

    @property
    def place(self) -> str:
        """Where the block is, for a failure's message."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether the block is a program."""
        return self.language in ("sh", "python") and self.directive != "not run"

    @property
    def needs(self) -> list[str]:
        """The modules that the block imports, where the tests' own environment may lack them."""
        return self.value.split() if self.directive == "needs" else []


def name_of(page: Path) -> str:
    """Return a page as tests and links call it: "docs/training.md"."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    section = directive = value = ""
    for before, token in pairwise([_START, *_tokens(page)]):
        if token.type == "fence":
            line = 0 if token.map is None else token.map[0] + 1
            language = token.info.strip()
            found.append(Block(page, section, line, language, token.content, directive, value))
        if before.type == "heading_open" and before.tag == "h2":
            section = token.content
        is_comment = token.type == "html_block"
        comment = _DIRECTIVE.fullmatch(token.content.strip()) if is_comment else None
        directive, value = comment.groups() if comment else ("", "")
    return found


@cache
def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    seen: Counter[str] = Counter()
    anchors: set[str] = set()
    for token in _headings(page):
        words = "".join(child.content for child in token.children or ())
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


def links_of(page: Path) -> Iterator[str]:
    """Yield the target of every link and image of a page."""
    for token in _tokens(page):
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if target is not None:
                yield str(target)


@cache
def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8"))


def _headings(page: Path) -> Iterator[Token]:
    for opening, token in pairwise(_tokens(page)):
        if opening.type == "heading_open":
            yield token
