"""Imports go downwards only: the floors are drawn from the imports, type-only and lazy ones too."""

from __future__ import annotations

import ast
from collections import defaultdict

import networkx as nx
import pytest
from house import FLOORS, HEIGHT, MODULES, PACKAGE, PARTS, WALL, arrows, imports, part_of, trees

CIRCLE = {
    "amp_rewrite.grad.walk",
    "amp_rewrite.grad.loop_gradient",
}
"""The one circle: a graph inside Loop is differentiated by the walk, which meets it."""

COMPOSE_NAMES = {
    *("amp_rewrite", "amp_rewrite.cli.command_table"),
    "amp_rewrite.rewriting.paint.pass_table",
}
"""What imports modules by names that it puts together: public names, commands and passes."""


def test_every_module_is_in_a_room_with_a_floor():
    folders = {"base", "rewriting", "runtimes", "training"}  # whose files or folders are parts
    assert {part_of(m) for m in MODULES} - folders - {"lists"} <= set(PARTS)


def test_every_part_is_there():
    assert set(PARTS) <= {part_of(m) for m in MODULES} | {"__main__"}


@pytest.mark.parametrize("room", FLOORS)
def test_a_room_imports_from_lower_floors_and_its_parts_from_lower_parts(room: str):
    upward = {
        f"{module} -> {other}"
        for module, others in imports().items()
        if PARTS.get(part_of(module)) == room
        for other in others
        if HEIGHT[part_of(other)] > HEIGHT[part_of(module)]
    }
    assert not upward


def test_a_house_that_one_person_can_hold():
    assert len(FLOORS) <= 14
    assert len(arrows()) <= 65


def test_the_rewriting_wing_knows_nothing_of_the_training_wing():
    order = list(FLOORS)
    wing = set(order[: order.index(WALL)])
    assert {(a, b) for a, b in arrows() if a in wing and b not in wing} == set()


def test_no_files_import_each_other_in_a_circle():
    graph = nx.DiGraph((a, b) for a, others in imports().items() for b in others)
    circles = [set(c) for c in nx.strongly_connected_components(graph) if len(c) > 1]
    assert [c for c in circles if c != CIRCLE] == []


def test_the_one_circle_is_still_there():
    assert all(imports()[module] & CIRCLE for module in CIRCLE)


def test_no_module_puts_the_name_of_another_together():
    found = {
        module
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")).endswith("import_module")
        if any(isinstance(a, ast.JoinedStr | ast.Subscript) for a in node.args)
    }
    assert {m for m in found if not m.startswith("amp_rewrite.runtimes.")} == COMPOSE_NAMES


def test_no_file_name_is_used_in_more_than_one_room():
    places: dict[str, list[str]] = defaultdict(list)
    faces = {path.stem for path in PACKAGE.glob("*.py")}
    for name, path in MODULES.items():
        if path.stem != "__init__" and PARTS[part_of(name)] != "cli":  # its file's name
            places[path.stem].append(name)
    twice = {stem: names for stem, names in places.items() if len(names) > 1}
    assert {s: n for s, n in twice.items() if s not in faces} == {}
