"""Every file that a docstring or a comment names is there."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READ = ("amp_rewrite", "tools", "benchmarks", "examples")
NAMED = re.compile(r"(?<![\w/.:<*{-])(?:[\w.-]+/)*[\w-]+\.(?:py|md)\b(?![/(\w])")
"""The path of a program or a page; what stands in an address or behind a placeholder is none."""

OTHERS = {
    *("onnx/docs/IR.md", "ContribOperators.md", "docs/OperatorKernels.md", "OperatorKernels.md"),
    *("gen_opkernel_doc.py", "pydoc_data/topics.py"),
}
"""Files of onnx, ONNX Runtime and Python."""


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a program and its docstrings, of variables too, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        text = node.value if isinstance(node, ast.Expr) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield text.lineno, text.value


def gone(source: str, there: set[str]) -> list[tuple[int, str]]:
    """Return the paths that a program names in prose and that are not there, with their lines."""
    if there >= {*NAMED.findall(source)}:  # most programs need not be parsed
        return []
    named = ((line, path) for line, text in prose(source) for path in NAMED.findall(text))
    return [(line, path) for line, path in named if path not in there]


def endings(files: set[str]) -> set[str]:
    """Return all ends of paths that begin with a name."""
    parts = [file.split("/") for file in files]
    return {"/".join(part[k:]) for part in parts for k in range(len(part))}


def tracked() -> set[str]:
    """Return the programs and pages of the repository, as texts with slashes."""
    found = {p for folder in (*READ, "docs", "tests") for p in (ROOT / folder).rglob("*.[pm][yd]")}
    return {p.relative_to(ROOT).as_posix() for p in {*found, *ROOT.glob("*.md")}}


def test_every_path_that_is_named_is_there() -> None:
    files = tracked()
    programs = sorted(f for f in files if f.startswith(READ) and f.endswith(".py"))
    there = endings(files) | OTHERS
    found = {file: gone((ROOT / file).read_text("utf-8"), there) for file in programs}
    assert not {file: paths for file, paths in found.items() if paths}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# see rounding.py", ["rounding.py"]),
        ('"""Of graph/read.py, of\n(a/c.py, section 3)."""', ["graph/read.py", "a/c.py"]),
        ('X = 1\n"""As values/a.py has it."""', ["values/a.py"]),
        ("def f():\n    'What b.py says, and here.py.'", ["b.py"]),
        ("# https://github.com/onnx/onnx/blob/main/setup.py, <name>.py, *.py, x.pyx", []),
        ("x = 'c.py'", []),
    ],
)
def test_paths_are_found_in_prose(source: str, expected: list[str]) -> None:
    assert [path for _, path in gone(source, {"here.py"})] == expected
