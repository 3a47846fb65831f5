"""A private name belongs to the file that defines it; classes do nothing behind a reader's back."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import amp_rewrite

PACKAGE = Path(amp_rewrite.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
"""The public names of a NamedTuple, whose underscore keeps them apart from its fields."""

LEFT = {"graph/tensors.py": {"_proto"}}
"""A field of onnx_ir's class, which offers no other way to the message that it holds."""

HIDDEN = {"__getattribute__", "__subclasses__"}
"""What changes the meaning of every attribute, or finds classes that no line names."""


def shown(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in NAMED_TUPLES


def defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that a file defines: functions, classes, variables, attributes of self."""
    for node in nodes:
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
    nodes = list(ast.walk(ast.parse(text)))
    own = set(defined(nodes))
    attributes = [n.attr for n in nodes if isinstance(n, ast.Attribute)]
    imports = [a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names]
    used = [name for name in attributes if name not in own] + imports
    return sorted({name for name in used if private(name)})


def test_a_file_uses_no_private_name_of_another() -> None:
    assert FILES
    found = {shown(path): set(foreign(path.read_text("utf-8"))) for path in FILES}
    assert {name: used for name, used in found.items() if used} == LEFT


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


def test_no_class_hides_what_happens() -> None:
    found = {shown(path): hidden(path.read_text("utf-8")) for path in FILES}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "text", ["class A:\n    def __getattribute__(self, name): ...", "A.__subclasses__()"]
)
def test_what_hides_something_is_found(text: str) -> None:
    assert hidden(text)


def hidden(text: str) -> set[str]:
    """Return the names of HIDDEN that a file defines or uses; most name none, even in words."""
    tree = ast.parse(text if any(name in text for name in HIDDEN) else "")
    return {name for node in ast.walk(tree) for name in names_of(node)} & HIDDEN


def names_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef):
        yield node.name
    elif isinstance(node, ast.Attribute):
        yield node.attr
