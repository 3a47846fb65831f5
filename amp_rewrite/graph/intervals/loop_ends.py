"""What goes into and out of the body of a Loop or Scan."""

from __future__ import annotations

from typing import NamedTuple

from amp_rewrite.graph.build_type_graph import scan_split
from amp_rewrite.graph.flat import FlatGraph


class LoopEnds(NamedTuple):
    """The values at the ends of a loop's body.

    Attributes:
        states: Pairs: an input of the body, and the value outside that it has at first.
        elements: Pairs: an input of the body, and the value outside of which it is a slice.
        returned: The body's outputs that states have in the next turn.
        stacked: The body's outputs that are stacked, turn by turn.
        limit: The value outside that says how many turns there are at most, ABSENT if none does;
            None where no input of the body counts them.
    """

    states: list[tuple[int, int]]
    elements: list[tuple[int, int]]
    returned: list[int]
    stacked: list[int]
    limit: int | None


def loop_ends(flat: FlatGraph, node: int, number: int) -> LoopEnds:
    """Return the ends of the body of a Loop or Scan."""
    body, outer = flat.bodies[number], flat.inputs_of(node)
    if flat.called(node).op_type == "Loop":
        n_states = len(body.inputs) - 2
        states = list(zip(body.inputs[2:], outer[2:], strict=True))
        returned, stacked = body.outputs[1 : 1 + n_states], body.outputs[1 + n_states :]
        return LoopEnds(states, [], returned, stacked, outer[0])
    first, end = scan_split(flat, node)
    n_states = end - first
    states = list(zip(body.inputs[:n_states], outer[first:end], strict=True))
    elements = list(zip(body.inputs[n_states:], outer[end:], strict=True))
    return LoopEnds(states, elements, body.outputs[:n_states], body.outputs[n_states:], None)
