"""One run of a step on the CPU, with every value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph import elements
from amp_rewrite.graph.io.read_object import infer_types
from amp_rewrite.graph.step_part import Part, part_of, source_of
from amp_rewrite.numerics.compare.intermediates import Chunks
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.low_sums import Sums
from amp_rewrite.training.graph.replicas import resolve
from amp_rewrite.training.step.step import Step
from amp_rewrite.training.step.step_info import DEFAULT_FETCHES

Array = np.ndarray[Any, Any]

_FLOATS = tuple(
    elements.tensor(t)
    for t in (
        *(ir.DataType.FLOAT, ir.DataType.DOUBLE),
        *(ir.DataType.FLOAT16, ir.DataType.BFLOAT16),
    )
)


class StepValues:
    """A step, its states and a batch. Sums over shards hold the part of this shard.

    Attributes:
        model: The step, with the fetches of its session.
        info: Its description.
        types: Floating-point value of the main graph -> its type.
    """

    def __init__(
        self, step: Step, states: Mapping[str, Array], feeds: Mapping[str, Array], sums: Sums
    ) -> None:
        """Keep the arguments of `diagnose`."""
        fetches = [name for name in DEFAULT_FETCHES if name in step.info.fetches]
        self.model, self.info = step.cut(fetches)
        resolve(self.model)
        inferred = infer_types(self.model)
        values = (v for node in self.model.graph for v in node.outputs if v.name)
        self.types = {v: inferred[v] for v in values if inferred.get(v) in _FLOATS}
        self.fed = {**states, **feeds}
        self._sums = sums

    def read(
        self, names: Sequence[str], *others: ir.Model
    ) -> Iterator[tuple[Mapping[str, Array], ...]]:
        """Run the step, with 16-bit types emulated, and yield values in chunks that fit memory.

        Yields:
            Name -> array for the step, and for each of the other models, which have the same names.
        """
        models = (self.model, *others)
        runs = [Evaluator(model, outputs=names, accumulate_low=self._sums) for model in models]
        feeds = {name: self.fed[name] for name in runs[0].inputs if name in self.fed}
        chunks = Chunks(names)
        for chunk in chunks:
            results = tuple(run.run(feeds, set(chunk)) for run in runs)
            chunks.held = sum(int(np.asarray(v).nbytes) for each in results for v in each.values())
            yield results


BACKWARD = "backward"

_WORDS = {
    Part.LOSS: "forward",
    Part.ARITHMETIC: "forward",
    Part.RANDOM: "forward",
    Part.GRADIENT: BACKWARD,
    Part.CLIP: "clipping",
    Part.ALL_REDUCE: "sum over shards",
    Part.LOSS_SCALE: "loss scaling",
    Part.UPDATE: "update",
}


def part_word(node: ir.Node) -> str:
    """Return the part of a step that a node belongs to; a cast belongs to its input's."""
    part = part_of(node)
    while part is None and node.op_type == "Cast" and node.inputs[0] is not None:
        producer = node.inputs[0].producer()
        if producer is None:
            break
        node, part = producer, part_of(producer)
    return "forward" if part is None else _WORDS[part]


def layer_of(node: ir.Node) -> str | None:
    """Return the node of the model that a node is the gradient of; a cast has its reader's."""
    source = source_of(node)
    if source is not None or node.op_type != "Cast":
        return source
    readers = (source_of(reader) for value in node.outputs for reader, _ in value.uses())
    return next((layer for layer in readers if layer is not None), None)
