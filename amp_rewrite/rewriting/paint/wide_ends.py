"""Graph inputs and outputs that stay float32 though they may give up their type.

They are an input of which the model makes an angle, an index or a count, and a state that goes from
call to call.

Evidence: the time 998.39 as a float16 input becomes 998.5, and the features of its angle are 1.6 %
off without it, 0.1 % with it.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from amp_rewrite.rewriting.paint.context import PaintContext
from amp_rewrite.rewriting.paint.passes.keep_carried import carried_states
from amp_rewrite.rewriting.paint.passes.keep_demands import demanded_inputs
from amp_rewrite.values.counts.find_demands import ANGLE, COORDINATES, JUMP, PLACE

_MADE = {
    ANGLE: "an angle",
    JUMP: "an index, or a step,",
    COORDINATES: "coordinates",
    PLACE: "a place",
}
"""The demand on an input, in words."""


def wide_ends(context: PaintContext, ends: AbstractSet[int]) -> dict[int, str]:
    """Return those of some inputs and outputs whose digits count, each with the reason.

    One that a node demands is none if the user allows that node.
    """
    found, m = dict[int, str](), context.values.match
    if not ends or context.lists.is_unsafe or context.only_low:
        return found

    def keep(value: int, node: int, why: str) -> None:
        if not any(context.is_allowed(v) for v in m.graph.vertices_of(node)):
            remedy = f"--allow-node {m.name(node)} makes it {m.low.name}"
            found.setdefault(value, f"{why}; {remedy}")

    names = m.flat.value_names
    for state in carried_states(m, named=context.given is not None):
        told = (
            f"arithmetic alone makes {names[state.output]} of {names[state.input]}, as of a state"
        )
        keep(state.input, state.nodes[0], told)
        keep(state.output, state.nodes[0], told)
    for value, demand in demanded_inputs(m, context).items():
        keep(value, m.graph.nodes[demand.vertex], f"{demand.name} makes {_MADE[demand.noun]} of it")
    return {v: why for v, why in found.items() if v in ends}
