"""The house: rooms and their parts from the ground up, and what imports what."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import amp_rewrite
from amp_rewrite.graph.paused_gc import paused_gc

PACKAGE = Path(amp_rewrite.__file__).parent

FLOORS: dict[str, tuple[str, ...]] = {
    "ground": (
        *("base.version", "base.removed", "base.printable", "errors"),
        *("base.fields", "base.arguments", "base.name_patterns"),
        *("base.first_guesses", "base.hints"),
        *("base.progress", "base.github_annotations", "base.processor", "base.late_sympy"),
        *("dtypes", "policy", "targets"),
    ),
    "graph": ("graph", "graph.io"),
    "values": (
        *("values", "values.patterns", "values.intervals"),
        *("values.magnitudes", "values.counts", "values.scales"),
    ),
    "runtimes": (
        *("runtimes.session", "runtimes.model_source", "runtimes.ort", "runtimes.openvino"),
        "runtimes",
    ),
    "kernels": ("kernels",),
    "oplists": ("oplists", "oplists.list_check"),
    "rewriting": (
        *("rewriting.reasons", "rewriting.paint", "rewriting.rules", "rewriting.plan"),
        *(
            "rewriting.apply",
            "rewriting.scaling",
            "rewriting.report",
            "rewriting",
            "compat",
            "rules",
        ),
    ),
    "grad": ("grad.builder", "grad"),
    "numerics": (
        *("numerics.emulate", "numerics.inputs", "numerics.repaint", "numerics.compare"),
        *("numerics.ranges", "numerics.budget", "numerics.convert", "numerics"),
    ),
    "page": ("page",),
    "training": (
        *("training.graph", "training.optimizers"),
        *("training.losses", "training.loss_scaling", "training", "training.step"),
        *("training.diagnosis", "training.data", "training.session", "training.distributed"),
        *("training.wrappers", "training.inject", "training.training_operators"),
        *("losses", "loss_scaling", "distributed", "optimizers"),
    ),
    "loop": ("loop", "callbacks"),
    "cli": ("cli",),
    "amp_rewrite": ("__init__", "__main__"),
}
"""The rooms from the ground up, and in each of them its parts, from the lowest up.

A part is a file, or a folder: the files in it, and in those folders of it that are no part.
"""

WALL = "training"
"""The first room of the training wing: what lies below it works without it."""

PARTS = {part: room for room, parts in FLOORS.items() for part in parts}
HEIGHT = {part: height for height, part in enumerate(PARTS)}

METADATA_KEYS = "amp_rewrite.graph.metadata_keys"
"""Its texts are keys in files, some of which are spelled like modules."""


def modules() -> dict[str, Path]:
    """Return every module of the package by its name; an installed one has the lists in it, too."""
    found: dict[str, Path] = {}
    for path in PACKAGE.rglob("*.py"):
        if path.parent == PACKAGE / "lists":
            continue
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path
    return found


MODULES = modules()


@cache
def trees() -> dict[str, ast.Module]:
    """Return the text of every module, parsed: when a test asks, not when tests are collected."""
    with paused_gc():  # which would look at them again and again: 7 s instead of 2
        return {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}


def imports_of(name: str) -> set[str]:
    """Return the modules of the package that a module imports, or names in a text of its own."""
    found: set[str] = set()
    for node in ast.walk(trees()[name]):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
        elif isinstance(node, ast.Constant) and name != METADATA_KEYS:
            found.add(str(node.value))
    return {m for m in found if m.startswith(f"{PACKAGE.name}.") and m in MODULES} - {name}


@cache
def imports() -> dict[str, set[str]]:
    """Return what every module imports."""
    return {name: imports_of(name) for name in MODULES}


def part_of(module: str) -> str:
    """Return the part of the house that a module belongs to."""
    inside = module.removeprefix(PACKAGE.name).removeprefix(".") or "__init__"
    while inside not in PARTS and "." in inside:
        inside = inside.rpartition(".")[0]
    return inside


def arrows() -> set[tuple[str, str]]:
    """Return which room imports from which other one."""
    rooms = {m: PARTS[part_of(m)] for m in MODULES if part_of(m) in PARTS}
    pairs = {(rooms[a], rooms[b]) for a, others in imports().items() for b in others}
    return {(a, b) for a, b in pairs if a != b and a != "amp_rewrite"}
