"""What the page knows of values: types before and after, and shapes."""

from __future__ import annotations

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.graph.elements import FLOAT32_TYPES
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.sizes import Shape
from amp_rewrite.page.columns import NONE, Columns, Strings
from amp_rewrite.rewriting.api import RewriteResult

_NAMES = {FLOAT32.onnx: FLOAT32.name, "double": "float64"}
"""How types are called that ONNX's type strings call otherwise."""


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


def _shape(shape: Shape | None, strings: Strings) -> int:
    if shape is None:
        return NONE
    return strings.number(
        "\N{MULTIPLICATION SIGN}".join("?" if d is None else str(d) for d in shape)
    )
