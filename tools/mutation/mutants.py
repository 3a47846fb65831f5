"""Mutants of source files: small changes that a test should notice, made by cosmic-ray's operators.

A place is a position of a file that operators can change. Each mutant is of another place, so that
an arithmetic sign, which has eleven replacements, weighs no more than a `not`. Left out is what
cannot change what a program does: annotations, and `==` for `is`.
"""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_NO_CHANGE = ("_Eq_Is", "_Is_Eq", "_NotEq_IsNot", "_IsNot_NotEq")
_WITH_ARGUMENTS = ("VariableReplacer", "VariableInserter")
_IDLE = ("name", "newline", "string", "endmarker")
"""Leaves that no operator changes."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed file.

    Attributes:
        path: The file, relative to the checkout.
        lines: First and last line of the statement that is changed; of a compound one, its header.
        line: The first line that differs.
        before: What differs of the original, without indentation; lines are joined by a space.
        after: What stands there instead.
        source: The whole changed text.
    """

    path: str
    lines: tuple[int, int]
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        """Return place and difference in a line."""
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


def sample(root: Path, paths: Iterable[str], number: int, seed: int) -> list[Mutant]:
    """Return mutants of a checkout's files, at different places, every place as likely.

    Args:
        root: The top of the checkout.
        paths: The files, relative to it.
        number: How many; fewer where there are fewer places.
        seed: The same seed draws the same mutants of the same files.
    """
    draw = random.Random(seed)
    places = [(path, *place) for path in paths for place in _places(root / path)]
    draw.shuffle(places)
    found: list[Mutant] = []
    for path, changes in places:
        if len(found) == number:
            break
        draw.shuffle(changes)
        text = (root / path).read_text("utf-8")
        made = (_mutant(path, text, operator, index) for operator, index in changes)
        if (mutant := next(filter(None, made), None)) is not None:
            found.append(mutant)
    return sorted(found, key=lambda mutant: (mutant.path, mutant.line))


def _places(path: Path) -> Iterator[tuple[list[tuple[str, int]]]]:
    """Yield for each position of a file the operators that change it, with their occurrence."""
    tree: Any = import_module("cosmic_ray.ast")
    nodes = [
        node
        for node in tree.ast_nodes(tree.get_ast(path.read_text("utf-8")))
        if node.type not in _IDLE
    ]
    found: defaultdict[Any, list[tuple[str, int]]] = defaultdict(list)
    for name, operator in _operators().items():
        positions = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for index, start in enumerate(positions):
            found[start].append((name, index))
    for start in sorted(found):
        yield (found[start],)


@cache
def _operators() -> dict[str, Any]:
    """Return cosmic-ray's operators that need no arguments."""
    plugins: Any = import_module("cosmic_ray.plugins")
    return {
        name: plugins.get_operator(name)()
        for name in plugins.operator_names()
        if not name.endswith((*_NO_CHANGE, *_WITH_ARGUMENTS))
    }


def _mutant(path: str, text: str, operator: str, index: int) -> Mutant | None:
    """Return a mutant; None for one that is no Python, or the same program."""
    mutating: Any = import_module("cosmic_ray.mutating")
    changed = mutating.mutate_code(text, _operators()[operator], index)
    try:
        if changed is None or _program(changed) == _program(text):
            return None
    except SyntaxError:
        return None
    old, new = text.splitlines(), changed.splitlines()
    first = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    first += next(i for i, line in enumerate(old[first:]) if line.strip())  # its place is code
    same = next(i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b)
    parts = (" ".join(s.strip() for s in lines[first : len(lines) - same]) for lines in (old, new))
    before, after = parts
    return Mutant(path, _statement(text, first + 1), first + 1, before, after, changed)


def _program(text: str) -> str:
    """Return what a text does, without its annotations."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                setattr(node, name, ast.Constant(0))
    return ast.dump(tree)


def _statement(text: str, line: int) -> tuple[int, int]:
    """Return the lines of the innermost statement around a line; of a compound one, its header."""
    found = (line, line)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt):
            body: list[ast.stmt] | None = getattr(node, "body", None)
            end = max(body[0].lineno - 1, node.lineno) if body else node.end_lineno or node.lineno
            if node.lineno <= line <= end:
                found = (node.lineno, end)
    return found
