"""Imports go downwards only: the floors are drawn from the imports, type-only and lazy ones too."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import networkx as nx
import pytest

import amp_rewrite

PACKAGE = Path(amp_rewrite.__file__).parent

FLOORS = (
    "version",
    "printable",
    "html_table",
    "errors",
    "fields",
    "arguments",
    "dtypes",
    "policy",
    "targets",
    "graph",
    "graph.patterns",
    "graph.proto",
    "graph.intervals",
    "graph.magnitudes",
    "graph.io",
    "graph.invariants",
    "ort",
    "oplists",
    "kernels",
    "kernel_rows",
    "accumulation",
    "fusions",
    "list_check",
    "paint",
    "paint.passes",
    "rewriting",
    "builder",
    "grad",
    "training",
    "optimizers",
    "losses",
    "loss_scaling",
    "global_state",
    "emulate",
    "report",
    "api",
    "compat",
    "adapters",
    "numerics",
    "page",
    "metrics",
    "trainer",
    "run_page",
    "callbacks",
    "inject",
    "training_info",
    "distributed",
    "bars",
    "cli",
    "__init__",
    "__main__",
)
"""The rooms, from the ground up; a folder is one room unless a folder in it is named here."""

CIRCLE = {"amp_rewrite.grad.walk", "amp_rewrite.grad.conditional", "amp_rewrite.grad.loop_gradient"}
"""The one circle: graphs inside If and Loop are differentiated by the walk, which meets both."""


def modules() -> dict[str, Path]:
    """Return every module of the package by its name."""
    found: dict[str, Path] = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path
    return found


MODULES = modules()


def imports_of(name: str) -> set[str]:
    """Return the modules of the package that a module imports, wherever in its text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
    return {m for m in found if m.partition(".")[0] == PACKAGE.name and m in MODULES}


IMPORTS = {name: imports_of(name) for name in MODULES}


def room_of(module: str) -> str:
    """Return the room that a module belongs to."""
    inside = module.removeprefix(PACKAGE.name).removeprefix(".") or "__init__"
    while inside not in FLOORS and "." in inside:
        inside = inside.rpartition(".")[0]
    return inside


def test_every_module_is_in_a_room_with_a_floor():
    assert {room_of(m) for m in MODULES} - {"lists"} <= set(FLOORS)


@pytest.mark.parametrize("room", FLOORS)
def test_a_room_imports_from_lower_floors_only(room: str):
    # A room and the rooms inside it use each other; no file of them may do so in a circle.
    height = FLOORS.index(room)
    upward = {
        f"{module} -> {other}"
        for module, others in IMPORTS.items()
        if room_of(module) == room
        for other in others
        if FLOORS.index(room_of(other)) > height
        and room.partition(".")[0] != room_of(other).partition(".")[0]
    }
    assert not upward


def test_no_files_import_each_other_in_a_circle():
    graph = nx.DiGraph((a, b) for a, others in IMPORTS.items() for b in others if a != b)
    circles = [set(c) for c in nx.strongly_connected_components(graph) if len(c) > 1]
    assert [c for c in circles if c != CIRCLE] == []


def test_the_one_circle_is_still_there():
    assert IMPORTS["amp_rewrite.grad.walk"] & CIRCLE
    assert IMPORTS["amp_rewrite.grad.conditional"] & CIRCLE
    assert IMPORTS["amp_rewrite.grad.loop_gradient"] & CIRCLE


def test_no_file_name_is_used_in_more_than_one_room():
    places: dict[str, list[str]] = defaultdict(list)
    for name, path in MODULES.items():
        if path.stem != "__init__" and room_of(name) != "cli":  # a command has its file's name
            places[path.stem].append(name)
    assert {stem: names for stem, names in places.items() if len(names) > 1} == {}
