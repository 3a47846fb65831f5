"""Steps as CUDA graphs: captured once for each shape of the feeds, then replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.graph.clone import clone
from amp_rewrite.graph.proto.infer_in_place import infer_in_place
from amp_rewrite.graph.traverse import subgraphs
from amp_rewrite.runtimes.ort.binding import Binding
from amp_rewrite.runtimes.ort.ort_values import empty, is_ort_value, to_array
from amp_rewrite.runtimes.session import Provider, name_and_options
from amp_rewrite.targets import CUDA
from amp_rewrite.training.session.compiled_program import CompiledProgram, StateTensors
from amp_rewrite.training.session.feeds import feed_shape
from amp_rewrite.training.step.step_info import StepInfo


def capturing(providers: Sequence[Provider]) -> list[Provider]:
    """Return providers with CUDA graph capture turned on."""
    name, options = name_and_options(providers[0])
    if name != CUDA:
        raise OptionError(
            "CUDA graphs need the CUDA execution provider",
            found=name,
            expected=f"providers=[{CUDA!r}]",
            remedy="leave cuda_graph out on other devices",
        )
    return [(name, {**options, "enable_cuda_graph": "1"}), *providers[1:]]


def check_capturable(graph: ir.Graph) -> None:
    """Check that a graph holds no control flow."""
    for node in graph:
        if next(subgraphs(node), None) is not None:
            raise OptionError(
                "a CUDA graph cannot hold control flow",
                where=f"node {node.name!r}",
                found=node.op_type,
                remedy='build the step with conditional="select", or leave cuda_graph out',
            )


class CapturedProgram:
    """A step that is compiled and captured for each shape of its feeds.

    Feeds are copied into tensors whose addresses stay, and fetches are written to such tensors.

    Attributes:
        info: The description of the model.
    """

    def __init__(
        self, model: ir.Model, info: StepInfo, sets: Sequence[StateTensors], **options: Any
    ) -> None:
        """Check the model; it is compiled when the shapes are known.

        The arguments are those of `CompiledProgram`; the providers have capture turned on.

        Raises:
            OptionError: The model holds control flow.
        """
        check_capturable(model.graph)
        self.info = info
        self._model, self._sets, self._options = model, sets, options
        self._known: dict[tuple[tuple[str, tuple[int, ...]], ...], _OneShape] = {}

    def run(self, current: int, feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Do what `CompiledProgram.run` does.

        Raises:
            RunError: ONNX Runtime reports an error, or the shape of a fetch depends on data.
        """
        shapes = {name: feed_shape(feed) for name, feed in feeds.items()}
        key = tuple(sorted(shapes.items()))
        if key not in self._known:
            model = clone(self._model)
            make_static(model, shapes)
            self._known[key] = _OneShape(model, self.info, self._sets, shapes, **self._options)
        return self._known[key].run(current, feeds)

    def end_profiling(self) -> str:
        """End profiling; return the path of the profile of the last shape."""
        return [program.end_profiling() for program in self._known.values()][-1]


class _OneShape(CompiledProgram):
    """A model for feeds of one shape, with an address for every feed and fetch."""

    def __init__(
        self,
        model: ir.Model,
        info: StepInfo,
        sets: Sequence[StateTensors],
        shapes: Shapes,
        **options: Any,
    ) -> None:
        """Allocate feeds and fetches, load the model and bind all of it."""
        unknown = open_values(model.graph)
        if unknown:
            raise RunError(
                "a CUDA graph needs static shapes",
                where=unknown[0].name,
                found="a shape that depends on data",
                remedy="do not fetch it, or leave cuda_graph out",
            )
        device = options["device"]
        inputs = {str(v.name): v for v in model.graph.inputs}
        outputs = {str(v.name): v for v in model.graph.outputs}
        wanted = {name: outputs[output] for name, output in info.fetches.items()}
        self._types = {name: _dtype(value) for name, value in wanted.items()}
        self._feeds = {
            name: empty(shape, _dtype(inputs[name]), device) for name, shape in shapes.items()
        }
        self._fetches = {
            name: empty(_dims(value), self._types[name], device) for name, value in wanted.items()
        }
        super().__init__(model, info, sets, **options)
        for number, binding in enumerate(self.bindings, 1):
            binding.capture_as(number)

    def _bind(self, states: StateTensors, following: StateTensors | None) -> Binding:
        binding = super()._bind(states, following)
        for name, value in self._feeds.items():
            binding.read(name, value)
        return binding

    def _bind_fetches(self, binding: Binding) -> None:
        for name, output in self.info.fetches.items():
            binding.write(output, self._fetches[name])

    def run(self, current: int, feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Copy the feeds, replay the graph, and copy the fetches."""
        for name, feed in feeds.items():
            tensor = feed if is_ort_value(feed) else np.asarray(feed, order="C")
            self._feeds[name].update_inplace(tensor)
        self.bindings[current].run("ONNX Runtime cannot run the step as a CUDA graph")
        return {name: to_array(v, self._types[name]) for name, v in self._fetches.items()}


def _dtype(value: ir.Value) -> ir.DataType:
    assert value.dtype is not None, "inputs and outputs of a step have types"
    return value.dtype


def _dims(value: ir.Value) -> tuple[int, ...]:
    return tuple(int(d) for d in value.shape or () if isinstance(d, int))


Shapes = Mapping[str, tuple[int, ...]]


def make_static(model: ir.Model, shapes: Shapes) -> None:
    """Give inputs their shapes, and turn what depends on shapes alone into constants, in place."""
    for value in model.graph.inputs:
        shape = shapes.get(str(value.name))
        if shape is not None:
            value.shape = ir.Shape(shape)
    infer_in_place(model)
    for node in list(model.graph):
        # operators: those that depend on nothing but lengths, and that _fold computes.
        if node.op_type in ("Shape", "Size") and node.domain == "":
            _fold(model.graph, node)


def open_values(graph: ir.Graph) -> list[ir.Value]:
    """Return the outputs of a graph whose lengths are not known."""
    return [v for v in graph.outputs if v.shape is None or not _known(v.shape)]


def _known(shape: ir.Shape) -> bool:
    return all(isinstance(d, int) for d in shape)


def _fold(graph: ir.Graph, node: ir.Node) -> None:
    source, old = node.inputs[0], node.outputs[0]
    if source is None or source.shape is None or not _known(source.shape):
        return
    dims = np.array([int(d) for d in source.shape if isinstance(d, int)], np.int64)
    if node.op_type == "Size":
        dims = np.array(dims.prod(), np.int64)
    else:
        end = node.attributes.get("end")
        dims = dims[node.attributes.get_int("start", 0) : None if end is None else end.as_int()]
    if old.is_graph_output():
        return
    name = str(old.name)
    old.name = f"{name}:computed"
    new = ir.Value(
        name=name,
        type=ir.TensorType(ir.DataType.INT64),
        shape=ir.Shape(dims.shape),
        const_value=ir.tensor(dims, name=name),
    )
    graph.register_initializer(new)
    ir.convenience.replace_all_uses_with(old, new)
    graph.remove(node, safe=True)
