"""The system of a model's exponents, in one sweep over its nodes.

What enters or leaves the model has exponent 0, and so has what nothing is known of: custom
operators, functions, sparse initializers. The branches of an If give their results one exponent
each, and what a Loop or Scan carries has one at all of its places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from onnx import TensorProto

from amp_rewrite.graph.constants import stored_tensor
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import ABSENT, FlatGraph
from amp_rewrite.graph.infer import FlatTypes
from amp_rewrite.graph.traits import is_one
from amp_rewrite.values.scales.call import UNSCALED, Call, Exponents, System
from amp_rewrite.values.scales.rules import nothing, rule_of

MOST_COPIED = 4096
"""Elements of the longest constant that is stored anew for each reader that needs another one."""

_FLOATS = frozenset(
    {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
)
_SCAN_WITHOUT_LENGTHS = 9


def scale_system(
    flat: FlatGraph, types: FlatTypes, preserved: Iterable[int] = (), *, borders: bool = False
) -> System:
    """Return what ties the exponents of a model's values together."""
    return _Builder(flat, types, borders=borders).built({*preserved})


class _Builder:
    def __init__(self, flat: FlatGraph, types: FlatTypes, *, borders: bool) -> None:
        self.flat, self._borders = flat, borders
        self.system = System(flat, types, Exponents(flat.n_values + len(flat.inputs)))
        self._floats = [t is not None and element(t) in _FLOATS for t in types]
        self._own: dict[int, bool] = {}
        held = (flat.outputs_of(node) for node in flat.nodes_of("Constant"))
        self._held = {*chain.from_iterable(held)}
        self._held.update(v for body in flat.bodies for v in body.initializers)

    def built(self, preserved: set[int]) -> System:
        flat, system = self.flat, self.system
        ends = (*flat.main.inputs, *flat.main.outputs)
        for value in ends:
            if self._floats[value] and (value in flat.main.outputs or not self._is_own(value)):
                side = "an output" if value in flat.main.outputs else "an input"
                system.exponents.pin(value, f"{flat.value_names[value]} is {side} of the model")
        for value in chain.from_iterable(body.initializers for body in flat.bodies):
            if stored_tensor(flat, value) is None:
                system.exponents.pin(value, f"{flat.value_names[value]} is no plain constant")
            elif not self._is_own(value):
                system.constants.add(value)
        rules = [
            nothing if called in flat.functions else rule_of(called) for called in flat.operators
        ]
        holding = [called.op_type if not called.domain else "" for called in flat.operators]
        for node, number in enumerate(flat.operator):
            call = Call(system, node, self._inputs(node), self._elements(flat.outputs_of(node)))
            if node in preserved:
                call.pin_all()
                self._pin_inside(node)
            elif holding[number] == "If":
                self._branches(call)
            elif holding[number] in ("Loop", "Scan"):  # operators: those that carry states
                self._loop(call)
            else:
                self._pin_inside(node)
                rules[number](call)
        return system

    def _elements(self, values: Sequence[int]) -> list[int]:
        return [v if v != ABSENT and self._floats[v] else ABSENT for v in values]

    def _inputs(self, node: int) -> list[int]:
        """Return the elements that a node reads; a constant of its own has one for each slot."""
        flat, floats, held = self.flat, self._floats, self._held
        read = flat.inputs_of(node)
        if not self._borders and held.isdisjoint(read):  # nearly always
            return [v if v != ABSENT and floats[v] else ABSENT for v in read]
        values, inputs, elements = flat.inputs, list[int](), dict[int, int]()
        for slot in range(flat.input_start[node], flat.input_start[node + 1]):
            value = values[slot]
            if value == ABSENT or not floats[value]:
                inputs.append(ABSENT)
            elif value in held and self._is_own(value):
                inputs.append(flat.n_values + slot)
                self.system.constants.add(inputs[-1])
            elif self._borders:
                if value not in elements:
                    elements[value] = flat.n_values + slot
                    self.system.links.append((value, elements[value]))
                inputs.append(elements[value])
            else:
                inputs.append(value)
        return inputs

    def _is_own(self, value: int) -> bool:
        """Tell whether each reader of a value may have another one: it is a constant."""
        if value not in self._own:
            flat = self.flat
            tensor = stored_tensor(flat, value)
            few = tensor is not None and (tensor.size <= MOST_COPIED or len(flat.uses(value)) <= 1)
            is_end = flat.is_output(value)
            self._own[value] = few and not is_end
            if tensor is not None and not few and not is_end:
                self.system.constants.add(value)
        return self._own[value]

    def _pin_inside(self, node: int) -> None:
        """Let nothing that enters or leaves the graphs inside a node be scaled."""
        flat = self.flat
        for number in flat.bodies_in(node):
            body = flat.bodies[number]
            for value in (*body.inputs, *body.outputs):
                if self._floats[value]:
                    why = f"{flat.node_names[node]} reads or makes it, {UNSCALED}"
                    self.system.exponents.pin(value, why)

    def _branches(self, call: Call) -> None:
        """Tie the results of an If to what its branches give."""
        for number in self.flat.bodies_in(call.node):
            ends = self._elements(self.flat.bodies[number].outputs)
            for output, end in zip(call.outputs, ends, strict=False):
                call.same(output, end)

    def _loop(self, call: Call) -> None:
        """Tie what a Loop or Scan carries at all places, and slices to what they are cut from."""
        (number,) = self.flat.bodies_in(call.node)
        body, is_scan = self.flat.bodies[number], not is_one(self.flat.called(call.node), "Loop")
        if is_scan and self.flat.opset_of(call.node) < _SCAN_WITHOUT_LENGTHS:
            call.pin_all()
            call.pin(*self._elements(body.inputs), *self._elements(body.outputs))
            return
        states = len(call.inputs) - (call.attribute("num_scan_inputs", 0) if is_scan else 2)
        reads, ends = self._elements(body.inputs), self._elements(body.outputs)
        if not is_scan:  # the number of the turn, and whether there is another one
            reads, ends = reads[2:], ends[1:]
        given = call.inputs if is_scan else call.inputs[2:]
        for index, (read, outer) in enumerate(zip(reads, given, strict=False)):
            call.same(read, outer, *([ends[index]] if index < states else ()))
        for output, end in zip(call.outputs, ends, strict=False):
            call.same(output, end)
