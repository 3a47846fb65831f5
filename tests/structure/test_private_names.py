"""A private name belongs to the file that defines it; classes do nothing behind a reader's back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import amp_rewrite

PACKAGE = Path(amp_rewrite.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
"""The public names of a NamedTuple, whose underscore keeps them apart from its fields."""

LEFT = {"graph/io/tensorproto.py": {"_proto"}}
"""A field of onnx_ir's class, which offers no other way to the message that it holds."""

HIDDEN = {"__getattribute__", "__subclasses__"}
"""What changes the meaning of every attribute, or finds classes that no line names."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in NAMED_TUPLES


def defined(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a file defines: functions, classes, variables, attributes of self."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store())
            ):
                yield name
            case _:
                pass


def foreign(text: str) -> list[str]:
    """Return the private names of other files that the text of a file uses."""
    tree = ast.parse(text)
    own = set(defined(tree))
    attributes = [n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    imports = [a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names]
    used = [name for name in attributes if name not in own] + imports
    return sorted({name for name in used if private(name)})


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_uses_no_private_name_of_another(path: Path) -> None:
    left = LEFT.get(path.relative_to(PACKAGE).as_posix(), set())
    assert set(foreign(path.read_text("utf-8"))) <= left


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("other._hook()", ["_hook"]),
        ("from amp_rewrite.grad.walk import _sum", ["_sum"]),
        ("class A(B):\n    def f(self): return super()._f()", ["_f"]),
        ("class A:\n    def _f(self): pass\n    def g(self, other): other._f()", []),
        ("class A:\n    def __init__(self): self._n = 0\n    def g(self, a): return a._n", []),
        ("def _f(): pass\n_f()", []),
        ("state._asdict(), state.__class__", []),
    ],
)
def test_private_names_of_other_files_are_found(text: str, found: list[str]) -> None:
    assert foreign(text) == found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_class_hides_what_happens(path: Path) -> None:
    names = {
        name for node in ast.walk(ast.parse(path.read_text("utf-8"))) for name in names_of(node)
    }
    assert not names & HIDDEN


def names_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef):
        yield node.name
    elif isinstance(node, ast.Attribute):
        yield node.attr
