"""Constants whose rounding alone makes a model fail: what reads them has to stay float32.

A variance of 9e-9 is 0 in float16, a table of positions up to 5,000 has steps of 4, a scale of 1e-9
is gone. No error of arithmetic has to be excused there, since the rewrite itself chose to round the
number. The float32 model is loaded once with its constants as inputs that have defaults, so that a
run may round any of them. Halves of what is suspected are tried alone, the worst first, down to
single constants: one among a thousand takes some twenty runs.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import AmpError, OutOfTimeError
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.numerics.compare.moved_inputs import moved
from amp_rewrite.numerics.compare.verification import Verification
from amp_rewrite.numerics.compare.weights_alone import RoundedConstant, rounded_constants
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.exact import is_exact
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Array, Feeds
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.oplists import ListName, NodeRule
from amp_rewrite.runtimes.ort.time_limit import time_limit

HARM = 1.0
"""A constant does harm if its rounding alone brings more than this share of the tolerance.

Whatever holds keeps such a constant in float32. What is below it is for `tune` to choose."""

RUNS = 200
"""How many runs are made at most; what is diffuse is for `tune`."""

_PREFIX = "amp-rewrite.constant"


@dataclass(frozen=True, slots=True)
class HarmfulConstant:
    """A constant whose rounding alone exceeds the tolerance.

    Attributes:
        name: Its name.
        graph: Which graph it is in, as in RoundedConstant.
        share: What its rounding alone brings, in units of the tolerance.
    """

    name: str
    graph: int
    share: float


def harmful_constants(run: Verification, feeds: Feeds, seconds: float) -> list[HarmfulConstant]:
    """Return the constants whose rounding alone makes a rewritten model fail, the worst first.

    Args:
        run: The verification in which it failed.
        feeds: A feed on which it failed.
        seconds: For how long to search.

    Returns:
        None of them where the float32 model cannot be run with constants as inputs, or where the
        errors of many constants add up of which none does harm alone.
    """
    deadline = time.monotonic() + seconds
    try:
        with time_limit(deadline):
            model = _OpenConstants.of(run.before, run.after.model, run.threads)
            reference = run.run_original(feeds)
            other = moved(feeds)
            moves = None if other is None else run.run_original(other)
    except AmpError:
        return []

    steady = {} if moves is None else run.compared(reference, moves, {}, {})

    def share(rounded: Collection[int]) -> float:
        comparers = run.compared(reference, model.run(feeds, rounded), {}, {})
        results = (c.result([steady[n]] if n in steady else []) for n, c in comparers.items())
        return max((result.share for result in results), default=0.0)

    search = _Search(share, deadline)
    try:
        with time_limit(deadline):
            search.run(len(model.names))
    except OutOfTimeError:
        pass
    except AmpError:  # the model does not take one of the constants as an input
        return []
    losses = dict(sorted(search.found.items(), key=lambda pair: -pair[1]))
    return [HarmfulConstant(*model.names[index], part) for index, part in losses.items()]


def rules_for(painter: Repainter, constants: Sequence[HarmfulConstant]) -> tuple[NodeRule, ...]:
    """Return rules that keep float32 what reads these constants, in execution order.

    What only passes numbers on is followed: a table that is gathered and reshaped stays float32 up
    to what computes with it.
    """
    graphs = [painter.model.graph, *painter.model.graph.subgraphs()]
    why: dict[int, str] = {}
    for constant in constants:
        value = _value_named(graphs[constant.graph], constant.name)
        if value is None:
            continue
        reason = (
            f"rounding its constant {constant.name} to {painter.low.name} alone brings "
            f"{constant.share:.2g} times the largest error allowed"
        )
        for node in _readers(painter, painter.number[value]):
            why.setdefault(node, reason)
    return tuple(
        NodeRule(painter.nodes[node].name or "", None, ListName.DENY, why[node], "convert")
        for node in sorted(why)
    )


def _value_named(graph: ir.Graph, name: str) -> ir.Value | None:
    if name in graph.initializers:
        return graph.initializers[name]
    constants = (node.outputs[0] for node in graph if node.op_type == "Constant")
    return next((value for value in constants if value.name == name), None)


def _readers(painter: Repainter, constant: int) -> list[int]:
    """Return the nodes that read a value, and what reads the results of those that are exact."""
    flat, readers = painter.flat, dict[int, None]()
    waiting = [constant]
    while waiting:
        for node in flat.readers(waiting.pop()):
            if node in readers:
                continue
            readers[node] = None
            if is_exact(painter.nodes[node]):
                waiting += flat.outputs_of(node)
    return [*readers]


@dataclass
class _Search:
    """A search for the constants that do harm, by what rounding some of them brings."""

    share: Callable[[Collection[int]], float]
    deadline: float
    runs: int = 0
    found: dict[int, float] = field(default_factory=dict[int, float])

    def run(self, count: int) -> None:
        """Find the harmful ones among N constants, and what each of them brings alone."""
        suspected: list[tuple[float, tuple[int, ...]]] = []
        self._suspect(suspected, tuple(range(count)))
        while suspected and not self._is_over():
            share, group = heapq.heappop(suspected)
            if len(group) == 1:
                self.found[group[0]] = -share
                others = [i for i in range(count) if i not in self.found]
                if others and self._measure_group(others) <= HARM:
                    break
                continue
            middle = len(group) // 2
            self._suspect(suspected, group[:middle])
            self._suspect(suspected, group[middle:])

    def _suspect(
        self, suspected: list[tuple[float, tuple[int, ...]]], group: tuple[int, ...]
    ) -> None:
        share = self._measure_group(group) if group else 0.0
        if share > HARM:
            heapq.heappush(suspected, (-share, group))

    def _measure_group(self, group: Collection[int]) -> float:
        self.runs += 1
        return self.share(group)

    def _is_over(self) -> bool:
        return self.runs >= RUNS or time.monotonic() > self.deadline


@dataclass
class _OpenConstants:
    """The float32 model with the constants as inputs that a rewrite rounded.

    Attributes:
        names: The name of each of them, and its graph, as in RoundedConstant.
    """

    names: list[tuple[str, int]]
    _inputs: list[str]
    _rounded: list[ir.TensorProtocol]
    _session: Evaluator

    @staticmethod
    def of(original: TypedModel, rewritten: ir.Model, threads: int) -> _OpenConstants:
        """Load it.

        Raises:
            AmpError: It cannot be loaded so.
        """
        model = original.copy().model
        all_rounded = rounded_constants(model, rewritten)
        constants = [constant for constant in all_rounded if not constant.value.is_graph_output()]
        names = [(c.value.name or "", c.graph) for c in constants]
        model.ir_version = max(model.ir_version, FIRST_IR_WITH_OVERRIDES)
        inputs = [_open_constant(model.graph, constant, i) for i, constant in enumerate(constants)]
        session = Evaluator(TypedModel(model, spare=True), threads=threads)
        return _OpenConstants(names, inputs, [c.rounded for c in constants], session)

    @cached_property
    def _arrays(self) -> list[Array]:
        return [np.asarray(tensor.numpy()) for tensor in self._rounded]

    def run(self, feeds: Feeds, rounded: Collection[int]) -> dict[str, Any]:
        """Return the outputs with some constants rounded.

        Raises:
            AmpError: The model cannot be run so.
        """
        return self._session.run({**feeds, **{self._inputs[i]: self._arrays[i] for i in rounded}})


def _open_constant(graph: ir.Graph, constant: RoundedConstant, number: int) -> str:
    """Make a constant an input with a default; return the input's name."""
    value, name = constant.value, constant.value.name or ""
    if graph.initializers.get(name) is value:
        if not value.is_graph_input():
            graph.inputs.append(value)
        return name
    before, name = constant.before, f"{_PREFIX}.{number}"
    open_input = ir.Value(
        name=name,
        type=ir.TensorType(FLOAT32.ir),
        shape=ir.Shape(before.shape.numpy()),
        const_value=before,
    )
    graph.register_initializer(open_input)
    graph.inputs.append(open_input)
    value.replace_all_uses_with(open_input)
    return name
