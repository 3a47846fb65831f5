"""Scan as a Loop, whose turns read their parts of what is scanned."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.builder.known import copied

_INT64_MIN = int(np.iinfo(np.int64).min)


def scans_as_loops(model: ir.Model) -> bool:
    """Put a Loop in the place of every Scan, in place; return whether there was one.

    A Scan along an axis that is not the first, of a value of unknown rank, stays.
    """
    nodes = [node for node in model.graph.all_nodes() if node.op_type == "Scan" and not node.domain]
    scans = [scan for scan in map(_Scan, nodes) if scan.knows_axes()]
    b = Builder(model, scope="scan")
    for scan in scans:
        scan.replace(b)
    return bool(scans)


class _Scan:
    """A Scan node, and what its attributes say."""

    def __init__(self, node: ir.Node) -> None:
        """Read the attributes."""
        self._node, self._body = node, node.attributes["body"].as_graph()
        scanned = node.attributes["num_scan_inputs"].as_int()
        self._states = len(node.inputs) - scanned
        outputs = len(self._body.outputs) - self._states
        self._input_axes = self._each("scan_input_axes", scanned)
        self._input_turned = self._each("scan_input_directions", scanned)
        self._output_axes = self._each("scan_output_axes", outputs)
        self._output_turned = self._each("scan_output_directions", outputs)

    def _each(self, name: str, count: int) -> list[int]:
        return list(self._node.attributes.get_ints(name, [0] * count))

    def knows_axes(self) -> bool:
        """Return whether the ranks are known that moving the axes takes."""
        wholes = zip(self._node.inputs[self._states :], self._input_axes, strict=True)
        parts = zip(self._body.outputs[self._states :], self._output_axes, strict=True)
        pairs = [*wholes, *parts]
        return all(axis == 0 or (v is not None and v.shape is not None) for v, axis in pairs)

    def replace(self, b: Builder) -> None:
        """Put a Loop, with the nodes that it needs around it, in the place of the node."""
        around = b.child(ir.Graph([], [], nodes=()))
        count = self._turn_body(b.child(self._body), around)
        states, results = self._node.inputs[: self._states], len(self._body.outputs) - 1
        loop = around.op("Loop", count, None, *states, outputs=results, body=self._body)
        outputs = list(loop) if isinstance(loop, tuple) else [loop]
        around.added[-1].name = self._node.name
        self._type(outputs, around)
        wholes = zip(outputs[self._states :], self._output_axes, self._output_turned, strict=True)
        placed = [_to_place(around, *whole) for whole in wholes]
        around.replace(self._node, [*outputs[: self._states], *placed])

    def _turn_body(self, inner: Builder, around: Builder) -> ir.Value:
        """Make the body that of a Loop; return how many turns there are."""
        body = self._body
        scanned = [v for v in self._node.inputs[self._states :] if v is not None]
        wholes = [_to_front(around, *pair) for pair in zip(scanned, self._input_axes, strict=True)]
        count = around.squeeze(around.dim(wholes[0], 0), [0])
        turn = inner.value("turn", ir.DataType.INT64)
        goes_on = inner.value("goes_on", ir.DataType.BOOL)
        parts = body.inputs[self._states :]
        for part, whole, turned in zip(parts, wholes, self._input_turned, strict=True):
            index = inner.sub(around.sub(count, 1), turn) if turned else turn
            piece = inner.shaped_like(inner.gather(whole, index), part)
            ir.convenience.replace_all_uses_with(part, piece, replace_graph_outputs=True)
        states = body.inputs[: self._states]
        for state, initial in zip(states, self._node.inputs, strict=False):
            if initial is not None and state.shape is None:
                state.type, state.shape = initial.type, copied(initial.shape)
        outputs = [inner.op("Identity", goes_on), *body.outputs]
        body.inputs.clear()
        body.inputs.extend([turn, goes_on, *states])
        body.outputs.clear()
        body.outputs.extend(outputs)
        body.sort()
        return count

    def _type(self, outputs: list[ir.Value], b: Builder) -> None:
        """Record the types and shapes of the Loop's outputs."""
        for index, (output, inside) in enumerate(zip(outputs, self._body.outputs[1:], strict=True)):
            lengths = b.symbolic_dims(inside)
            output.type = inside.type
            stacked = index >= self._states
            output.shape = (
                None if lengths is None else ir.Shape([None, *lengths] if stacked else lengths)
            )


def _to_front(b: Builder, whole: ir.Value, axis: int) -> ir.Value:
    """Return `whole` with an axis as its first one."""
    if axis == 0:
        return whole
    rank = b.rank(whole) or 0
    axis %= rank
    return b.transpose(whole, [axis, *(k for k in range(rank) if k != axis)])


def _to_place(b: Builder, whole: ir.Value, axis: int, turned: int) -> ir.Value:
    """Return `whole`, reversed if `turned`, with its first axis at another place."""
    if turned:
        whole = b.shaped_like(b.slice(whole, [-1], [_INT64_MIN], [0], [-1]), whole)
    if axis == 0:
        return whole
    rank = b.rank(whole) or 0
    order = list(range(1, rank))
    order.insert(axis % rank, 0)
    return b.transpose(whole, order)
