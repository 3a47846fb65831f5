"""A float32 model that also says how far rounding each of its values moves its outputs.

With y a value, r(y) its 16-bit form and J the Jacobian of the outputs, rounding y changes the
outputs by J (r(y) - y) to first order. Its squared length is the mean of (u . J (r(y) - y))^2 over
random directions u of independent normal numbers (Hutchinson, 1989), and u . J is a gradient: one
backward pass gives that number for every value at once.

The forward pass is computed once. What depends on a direction stands in a Loop, each turn of which
is the backward pass for one of them, so that 8 directions cost about 9 passes and no more memory
than one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import GradientError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.prepare import modernise, prepare
from amp_rewrite.grad.walk import gradients
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.constants import constant_tensor
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.traverse import inputs_of, remove_unused_nodes
from amp_rewrite.numerics.budget.roundings import Errors, Rounding, is_float32
from amp_rewrite.numerics.budget.taken_branches import put_taken_branches
from amp_rewrite.numerics.compare.masked_rows import MaskedRows
from amp_rewrite.numerics.emulate.model import is_exact
from amp_rewrite.numerics.inputs.batches import Array, Feeds
from amp_rewrite.numerics.repaint.float32_session import Float32Session
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.runtimes.ort.time_limit import check_time

_SUMS, _PEAKS = "amp-rewrite.budget.sums", "amp-rewrite.budget.peaks"

# operators: their results are choices, which is asked here alone
_DECISIONS = ("ArgMax", "ArgMin", "TopK", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
"""Operators whose results are choices and no numbers."""

# operators: their results are probabilities, which is asked here alone
_SATURATING = ("Softmax", "Sigmoid", "Exp")
"""Operators of probabilities: they hide an error where a batch is certain, and no other one."""


_FIRST_OF_ONE_AXIS = 13
"""The opset in which a Softmax goes along one axis, not along all from one on."""


class End(NamedTuple):
    """Where errors are measured: an output, or the operand of a node that decides.

    Attributes:
        name: The name of the value.
        node: The index of the node that decides by it; ABSENT for an output.
        saturates: Whether the node makes an output of it, a probability.
        shared: The axis along which an error that all elements share changes nothing, from the end;
            0 for none. That of a Softmax, which goes along the last one by default.
    """

    name: str
    node: int = ABSENT
    saturates: bool = False
    shared: int = 0

    @property
    def decides(self) -> bool:
        """Whether it is the operand of a node that decides."""
        return self.node != ABSENT


@dataclass(frozen=True)
class Differentiated:
    """A loaded model.

    Attributes:
        roundings: The roundings that are measured.
        ends: Where their errors are measured.
        unreached: Number of a float32 value -> why its rounding is not measured.
        masked: Finds the rows that attention masks whole.
        wide: The names of outputs that stay float32, and by which no node decides: what is rounded
            for a 16-bit node that reads one is not rounded as an output.
    """

    roundings: tuple[Rounding, ...]
    ends: tuple[End, ...]
    unreached: Mapping[int, str]
    masked: MaskedRows
    wide: frozenset[str]
    _session: Float32Session
    _values: Float32Session
    _directions: Mapping[str, str]
    _probes: tuple[str, int]
    _probed: int
    _peaks: Mapping[int, int]

    @staticmethod
    def of(painter: Repainter, feeds: Sequence[Feeds]) -> Differentiated:
        """Build and load it for some batches, which decide the branches of If nodes.

        Raises:
            GradientError: The opset is too old and cannot be raised, or no output is float32.
        """
        return _Build(painter, feeds).run()

    def at_ends(self, feeds: Feeds) -> dict[str, Array]:
        """Return the values at the ends, for one batch."""
        return self.values(feeds, [end.name for end in self.ends])

    def values(self, feeds: Feeds, names: Collection[str]) -> dict[str, Array]:
        """Return values at the ends, or of what `masked` asks for, for one batch."""
        return self._values.run(feeds, [*names])

    def run(self, feeds: Feeds, directions: Mapping[str, Array]) -> tuple[Array, dict[int, float]]:
        """Return what each rounding changes along directions, for one batch.

        Args:
            feeds: The batch.
            directions: Name of an end -> D directions, float32 of shape (D, *that of its value).

        Returns:
            By direction and rounding, (D, roundings) float64, the squared change: the larger of
            that of all elements' errors together and of each by itself, as of independent ones.
            Number of a value -> its largest magnitude.
        """
        given = {self._directions[name]: array for name, array in directions.items()}
        name, probes = self._probes
        if name:
            given[name] = np.zeros(probes, np.float32)
        found = self._session.run({**feeds, **given}, [_SUMS, _PEAKS])
        sums = np.asarray(found[_SUMS], np.float64)
        outer = (len(self.roundings) - self._probed) * 2
        together, apart = sums[:, 0:outer:2] ** 2, sums[:, 1:outer:2]
        squares = np.concatenate((np.maximum(together, apart), sums[:, outer:] ** 2), axis=1)
        peaks = np.asarray(found[_PEAKS], np.float64)
        return squares, {value: float(peaks[k]) for value, k in self._peaks.items()}


class _Build:
    """Builds the model from a copy of the painter's."""

    def __init__(self, painter: Repainter, feeds: Sequence[Feeds]) -> None:
        self.painter = painter
        self.model = clone(painter.model)
        put_taken_branches(self.model, feeds)
        check_time()
        modernise(self.model)
        prepare(self.model)
        check_time()
        self.b = Builder(self.model, scope="budget")
        self.plain = self.b.child(self.model.graph)  # for nodes of which nobody asks shapes
        self.plain.annotates = False
        self.errors = Errors(painter, self.model, self.b)
        self.decided = set[str]()

    def run(self) -> Differentiated:
        ends, b, errors = self._ends(), self.b, self.errors
        if not ends:
            raise GradientError(
                "no output has gradients",
                where="main graph",
                expected="a float32 output",
                remedy="make what the outputs are computed of an output",
            )
        outer, inner = errors.measured()
        errors.probe(inner)
        turn = _value(b.free_name("budget/turn"), ir.DataType.INT64, [])
        seeds, directions = self._seeds(ends, turn)
        names = self.painter.flat.value_names
        wrt = [errors.values[names[number]] for number in outer]
        probes = [] if errors.probes is None else [errors.probes]
        stops = dict[ir.Node, str]()
        found = gradients(b, seeds, [*wrt, *probes], sparse=False, stops=stops)
        check_time()
        reached = {
            number: gradient
            for number, gradient in zip(outer, found, strict=False)
            if isinstance(gradient, ir.Value)
        }
        whys = {v: why for node, why in stops.items() for v in node.inputs if v is not None}
        unreached = {
            number: whys.get(errors.values[names[number]], "no gradient reaches it")
            for number in outer
            if number not in reached
        }
        for number in reached:
            errors.add(number, self.plain)
        products: dict[ir.Value, list[ir.Value]] = {}
        vectors: dict[int, ir.Value] = {}
        for rounding, error in errors.roundings.items():
            if error not in products:
                value = rounding.value
                if value not in vectors:
                    vectors[value] = self._vector(reached[value])
                products[error] = self._products(vectors[value], self._vector(error))
        parts = [part for error in errors.roundings.values() for part in products[error]]
        probed = found[-1] if probes and isinstance(found[-1], ir.Value) else None
        unreached |= {} if probed is not None else dict.fromkeys(inner, "no gradient reaches it")
        parts += [] if probed is None else [probed]
        if not parts:
            raise GradientError(
                "no gradient reaches any value",
                where="main graph",
                remedy="keep the rules of the op lists: nothing can be measured here",
            )
        sums = self._loop(turn, b.concat(parts, 0), next(iter(directions.values())))
        # Nodes behind the Loop are computed first, so that what the Loop does not read is free
        # then: 370 in place of 740 MB for a ResNet-50, 830 in place of 1,110 MB for ppocrv4_rec.
        peaks = self._peaks(reached)
        given = self.painter.model
        masked = MaskedRows(given, [v.name or "" for v in (*given.graph.inputs, *_results(given))])
        low_ends = {value.name or "" for value in self.painter.ends}
        plain = self._plain((*(end.name for end in ends), *masked.axes))
        outputs = self.model.graph.outputs
        outputs.clear()
        for value, name in ((sums, _SUMS), (peaks, _PEAKS)):
            value.name = name
            outputs.append(value)
        known = list(errors.roundings) + ([] if probed is None else errors.probed)
        return Differentiated(
            tuple(known),
            ends,
            unreached | self._unknown({*outer, *inner}),
            masked,
            frozenset(end.name for end in ends if not end.decides) - self.decided - low_ends,
            Float32Session(self.model, "the model with its gradients", with_gradients=True),
            plain,
            {name: value.name or "" for name, value in directions.items()},
            ("" if errors.probes is None else errors.probes.name or "", len(errors.probed)),
            0 if probed is None else len(errors.probed),
            {value: k for k, value in enumerate(reached)},
        )

    def _unknown(self, known: set[int]) -> dict[int, str]:
        """Return the float32 results of nodes that are nowhere in the prepared model."""
        flat, graph = self.painter.flat, self.painter.type_graph
        results = (v for i in range(len(self.painter.nodes)) for v in flat.outputs_of(i))
        return {
            v: "it is in a branch that no batch takes, a body that is used twice, or a function"
            for v in results
            if v != ABSENT
            and v not in known
            and graph.is_float32(v)
            and constant_tensor(graph, v) is None
        }

    def _ends(self) -> tuple[End, ...]:
        graph, flat = self.model.graph, self.painter.flat
        ends = {v.name or "": End(v.name or "") for v in graph.outputs if is_float32(v) and v.name}
        opset = self.painter.model.graph.opset_imports.get("", _FIRST_OF_ONE_AXIS)
        probabilities = {_probability(v) for v in self.painter.model.graph.outputs}
        for i, node in enumerate(self.painter.nodes):
            saturates = node in probabilities
            if not (saturates or node.op_type in _DECISIONS) or node.domain not in ("", "ai.onnx"):
                continue
            name = flat.value_names[flat.inputs_of(i)[0]]
            value = self.errors.values.get(name)
            if value is not None and value.const_value is None:
                self.decided.add(name)
                ends.setdefault(name, End(name, i, saturates, _shared(node, value, opset)))
        return tuple(ends.values())

    def _plain(self, names: Iterable[str]) -> Float32Session:
        """Return the model itself, with some of its values as further outputs."""
        given = {v.name for v in self.painter.model.graph.outputs}
        added = [name for name in dict.fromkeys(names) if name not in given]
        if not added:
            return Float32Session(self.painter.model)
        model = clone(self.painter.model)
        values = {v.name: v for v in (*model.graph.inputs, *_results(model))}
        model.graph.outputs.extend(values[name] for name in added)
        return Float32Session(model)

    def _seeds(
        self, ends: Sequence[End], turn: ir.Value
    ) -> tuple[dict[ir.Value, ir.Value], dict[str, ir.Value]]:
        """Add an input for the directions at each end, and what takes one of them."""
        seeds, inputs = dict[ir.Value, ir.Value](), dict[str, ir.Value]()
        for end in ends:
            value = self.errors.values[end.name]
            dims = None if value.shape is None else [None] * (len(value.shape) + 1)
            every = _value(self.b.free_name("budget/directions"), FLOAT32.ir, dims)
            self.model.graph.inputs.append(every)
            seeds[value] = self.b.gather(every, turn)
            seeds[value].type, seeds[value].shape = value.type, value.shape
            inputs[end.name] = every
        return seeds, inputs

    def _vector(self, value: ir.Value) -> ir.Value:
        """Return the elements of a value in one dimension."""
        return self.plain.op("Reshape", value, self.plain.constant([-1]))

    def _products(self, gradient: ir.Value, error: ir.Value) -> list[ir.Value]:
        """Return the sum of gradient times error, and that of its square, of one element each."""
        b = self.plain
        product = b.mul(gradient, error)
        return [b.reduce_sum(product, [0]), b.reduce("ReduceSumSquare", product, [0])]

    def _peaks(self, reached: Mapping[int, ir.Value]) -> ir.Value:
        """Return the largest magnitudes of values."""
        b, names, parts = self.plain, self.painter.flat.value_names, list[ir.Value]()
        for number in reached:
            flat = self._vector(self.errors.values[names[number]])
            highest, lowest = b.reduce("ReduceMax", flat, [0]), b.reduce("ReduceMin", flat, [0])
            parts.append(b.maximum(highest, b.neg(lowest)))
        return b.concat(parts, 0) if parts else b.constant(np.zeros(1, np.float32))

    def _loop(self, turn: ir.Value, vector: ir.Value, directions: ir.Value) -> ir.Value:
        """Put what depends on `turn` into a Loop over the directions; return all its vectors."""
        graph, b = self.model.graph, self.b
        graph.outputs.clear()
        graph.outputs.append(vector)
        depends, inside = {turn}, list[ir.Node]()
        for node in graph:
            if not depends.isdisjoint(inputs_of(node)):
                depends.update(node.outputs)
                inside.append(node)
        graph.outputs.clear()
        graph.remove(inside)
        again, go_on = (_value(b.free_name("budget/go"), ir.DataType.BOOL, []) for _ in range(2))
        keep = ir.Node("", "Identity", [again], outputs=[go_on])
        body = ir.Graph([turn, again], [go_on, vector], nodes=[keep, *inside], name="budget/body")
        remove_unused_nodes(body)
        count = b.op("Gather", b.op("Shape", directions), b.constant(0))
        return b.op("Loop", count, None, body=body)


def _results(model: ir.Model) -> Iterator[ir.Value]:
    return (value for node in model.graph for value in node.outputs)


def _probability(output: ir.Value) -> ir.Node | None:
    """Return the node that makes a probability, which an output is but for its shape or a sum."""
    node = output.producer()
    while node is not None and (node.op_type == "Div" or is_exact(node)):
        node = None if not node.inputs or node.inputs[0] is None else node.inputs[0].producer()
    return node if node is not None and node.op_type in _SATURATING else None


def _shared(node: ir.Node, operand: ir.Value, opset: int) -> int:
    """Return the axis along which a Softmax makes 1 of all, from the end; 0 for none or several."""
    if node.op_type != "Softmax" or operand.shape is None:
        return 0
    axis, rank = node.attributes.get("axis"), len(operand.shape)
    along = (-1 if opset >= _FIRST_OF_ONE_AXIS else 1) if axis is None else axis.as_int()
    along -= rank if along >= 0 else 0
    return along if along == -1 or opset >= _FIRST_OF_ONE_AXIS else 0


def _value(name: str, dtype: ir.DataType, dims: Sequence[int | None] | None) -> ir.Value:
    shape = None if dims is None else ir.Shape(dims)
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=shape)
