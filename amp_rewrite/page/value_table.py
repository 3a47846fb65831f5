"""What the page knows of values: types before and after, shapes, attributes, and constants."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.elements import FLOAT32_TYPES, tensor
from amp_rewrite.graph.flat import ABSENT, Attribute, FlatGraph, Tensor
from amp_rewrite.graph.sizes import Shape
from amp_rewrite.page.columns import NONE, Columns, Strings
from amp_rewrite.rewriting.api import RewriteResult

_NAMES = {FLOAT32.onnx: FLOAT32.name, "double": "float64"}
"""How types are called that ONNX's type strings call otherwise."""

_FEW = 8
"""Elements of a constant, or of a list, that are shown one by one."""

_LONGEST = 160
"""Characters of an attribute that are shown."""


def tabulate_values(result: RewriteResult, strings: Strings) -> Columns:
    """Return a row for each value: its name, its types before and after, and its shape."""
    flat = result.flat
    before, after = types_of(result)
    return {
        "name": [strings.number(name) for name in flat.value_names],
        "before": [strings.number(name) for name in before],
        "after": [strings.number(name) for name in after],
        "shape": [_shape(flat.shape(value), strings) for value in range(flat.n_values)],
    }


def types_of(result: RewriteResult) -> tuple[list[str | None], list[str | None]]:
    """Return, by value, what its type is called before and after; None where it is not known."""
    types = result.context.type_graph.types
    before = [None if t is None else type_name(t) for t in types]
    after = list(before)
    low = result.plan.low
    changed = {*result.plan.retyped, *result.plan.ends}
    changed |= {w.value for w in result.plan.weights if not w.keep_float32}
    for value in changed:
        name = before[value]
        if types[value] in FLOAT32_TYPES and name is not None:
            after[value] = name.replace(FLOAT32.name, low.name)
    return before, after


def type_name(type_string: str) -> str:
    """Return what a reader calls a type: its element's name, with "seq" around it if it is one."""
    inside = type_string.replace("tensor(", "").replace(")", "")
    *around, name = inside.split("(")
    return " of ".join([*around, _NAMES.get(name, name)])


def tabulate_ports(result: RewriteResult) -> Columns:
    """Return what nodes read and make: the values of all, and where those of a node begin.

    What is read through a Cast, or as a low copy of a weight, has a row in `cast`: its place in
    `inputs` and 1 if it is read in the low type, 0 in float32.
    """
    flat = result.flat
    casts: dict[int, int] = {}
    for cast in result.plan.casts:
        for use in cast.uses:
            if use.node != ABSENT:
                casts[flat.input_start[use.node] + use.index] = int(cast.to != FLOAT32)
    for weight in result.plan.weights:
        for use in weight.uses if weight.keep_float32 else ():
            if use.node != ABSENT:
                casts[flat.input_start[use.node] + use.index] = 1
    return {
        "inputs": list(flat.inputs),
        "inputStart": list(flat.input_start),
        "outputs": list(flat.outputs),
        "outputStart": list(flat.output_start),
        "cast": [[slot, low] for slot, low in casts.items()],
    }


def tabulate_attributes(flat: FlatGraph, drawn: Sequence[bool], strings: Strings) -> list[Any]:
    """Return, by node, the names and values of its attributes: numbers of strings, in turns."""
    rows_of: dict[Hashable, list[int]] = {}
    rows: list[list[int]] = []
    for node in range(flat.n_nodes):
        key = flat.spelled_attributes(node) if drawn[node] else ABSENT
        if key not in rows_of:
            attributes = flat.attributes(node) if drawn[node] else {}
            rows_of[key] = [
                strings.number(text)
                for name, attribute in attributes.items()
                for text in (name, _attribute_text(attribute))
            ]
        rows.append(rows_of[key])
    return rows


def _attribute_text(attribute: Attribute) -> str:
    """Return the value of an attribute in words."""
    value = attribute.value
    if attribute.reference:
        return f"@{attribute.reference}"
    if value is None:
        return "a graph"
    if hasattr(value, "dtype") and hasattr(value, "numpy"):
        return _tensor_said(value)
    text = _plain_text(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\N{HORIZONTAL ELLIPSIS}"


def _plain_text(value: Any) -> str:
    """Return a number, a string, or a list of them in words."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, list | tuple | np.ndarray):
        return f"[{', '.join(map(_plain_text, value[:_LONGEST]))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _tensor_said(held: Tensor) -> str:
    kind = type_name(tensor(int(held.dtype)))
    if held.size > _FEW:
        return f"{kind}, {held.size:,} elements"
    return f"{kind} {_elements_said(np.asarray(held.numpy()).ravel())}"


def _elements_said(elements: Any) -> str:
    shown = [f"{x:.6g}" if isinstance(x, float) else str(x) for x in elements.tolist()]
    return f"[{', '.join(shown)}]"


def tabulate_constants(flat: FlatGraph, strings: Strings) -> Columns:
    """Return a row for each constant that a node reads, with its elements if they are few."""
    rows = list(_constants(flat))
    return {
        "value": [value for value, _ in rows],
        "said": [strings.number(_few_elements(held)) for _, held in rows],
    }


def _constants(flat: FlatGraph) -> Iterator[tuple[int, Tensor]]:
    for value in sorted({value for value in flat.inputs if value != ABSENT}):
        node = flat.producer[value]
        held = flat.initializer(value) if node == ABSENT else flat.held(node)
        if held is not None:
            yield value, held


def _few_elements(held: Tensor) -> str | None:
    is_text = type_name(tensor(int(held.dtype))) == "string"
    if held.size > _FEW or is_text:
        return None
    return _elements_said(np.asarray(held.numpy()).ravel())


def _shape(shape: Shape | None, strings: Strings) -> int:
    if shape is None:
        return NONE
    return strings.number(
        "\N{MULTIPLICATION SIGN}".join("?" if d is None else str(d) for d in shape)
    )
