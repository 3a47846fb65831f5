"""One table of operators: what an operator does is asked of graph/traits.py, not listed again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from house import MODULES, trees

import amp_rewrite
from amp_rewrite.graph.schemas import names
from amp_rewrite.graph.traits import TABLE

PACKAGE = Path(amp_rewrite.__file__).parent
HOME = PACKAGE / "graph" / "traits.py"
DEFENCE = "# operators: "
"""Begins a comment, in a table or right above it, that says why the table is one of its own."""

NAMES = {s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""}
NAMES |= {
    name.removeprefix("com.microsoft::") for name in (*TABLE, *names(""), *names("com.microsoft"))
}


def operators_in(node: ast.AST) -> int:
    """Return how many operators a collection names; a key may be a tuple that begins with one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        words = node.value.split()
        return len(words) if len(words) > 1 and NAMES.issuperset(words) else 0
    if isinstance(node, ast.Dict):
        elements = [k for k in node.keys if k is not None]
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        elements = node.elts
    else:
        return 0
    heads = [e.elts[0] if isinstance(e, ast.Tuple) and e.elts else e for e in elements]
    return sum(isinstance(e, ast.Constant) and e.value in NAMES for e in heads)


def is_dispatch(node: ast.AST) -> bool:
    """Tell whether a dictionary leads to functions: it says how, where a trait says what."""
    kinds = (ast.Name, ast.Attribute, ast.Call, ast.Lambda)
    return isinstance(node, ast.Dict) and all(isinstance(v, kinds) for v in node.values)


def tables(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements, the innermost ones, with a table of operators."""
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.stmt) or isinstance(statement, ast.FunctionDef):
            continue
        body = [c for c in ast.iter_child_nodes(statement) if not isinstance(c, ast.stmt)]
        nodes = [n for child in body for n in ast.walk(child)]
        if any(operators_in(n) > 1 and not is_dispatch(n) for n in nodes):
            yield statement


def defended(statement: ast.stmt, lines: list[str]) -> set[int]:
    """Return the lines of the comments that defend a statement's tables."""
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    if isinstance(statement, ast.If | ast.For | ast.While):
        last = statement.body[0].lineno
    while first > 1 and lines[first - 2].strip().startswith("#"):
        first -= 1
    return {n for n in range(first, last + 1) if DEFENCE in lines[n - 1]}


def undefended(text: str, tree: ast.Module | None = None) -> tuple[list[int], set[int]]:
    """Return the lines of tables that nothing defends, and of comments that defend nothing."""
    lines = text.splitlines()
    alone: list[int] = []
    idle = {n for n, line in enumerate(lines, 1) if DEFENCE in line}
    for statement in tables(tree or ast.parse(text)):
        found = defended(statement, lines)
        if not found:
            alone.append(statement.lineno)
        idle -= found
    return alone, idle


@pytest.mark.parametrize(
    "text",
    [
        'MOVES = ("Reshape", "Transpose")',
        'MOVES = frozenset({*("Reshape", "Transpose")})',
        'POLES = {"Div": 1, "Log": 0}',
        'ATTRIBUTES = {("Cast", "T2"): "to", ("EyeLike", "T2"): "dtype"}',
        'MOVES = "Reshape Transpose".split()',
        'def f(x):\n    if x.op_type in ("If", "Loop"):\n        return 1',
        'def f(x):\n    return [y for y in x if y in {"If", "Loop"}]',
    ],
)
def test_a_table_of_operators_is_found(text: str):
    alone, _ = undefended(text)
    assert len(alone) == 1
    last = text.splitlines()[alone[0] - 1]
    assert undefended(text.replace(last, f"{last}  {DEFENCE}why")) == ([], set())


@pytest.mark.parametrize(
    "text",
    [
        'RULES = {"Add": add, "Sub": partial(add, -1)}',
        'NAMES = ("Reshape", "shape")',
        '"""Reshape, Transpose and the like."""',
    ],
)
def test_what_is_not_a_table_of_operators_is_left_alone(text: str):
    assert undefended(text) == ([], set())


def test_no_other_file_has_a_table_of_operators_but_for_a_reason():
    found = {
        name: undefended(path.read_text("utf-8"), trees()[name])
        for name, path in MODULES.items()
        if path != HOME
    }
    assert {name: lines for name, lines in found.items() if lines != ([], set())} == {}
