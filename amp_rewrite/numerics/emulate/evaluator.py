"""Run a model once, or load it once and run it on many batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.base import arguments
from amp_rewrite.base.hints import Hinted
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import DataError, OptionError
from amp_rewrite.graph import elements
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.elements import set_element
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.io.load import Source
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.kernels.rounding_table import RoundingTable
from amp_rewrite.numerics.emulate.emulated_feeds import (
    FedInputs,
    FeedSpec,
    feed_specs,
    widened,
)
from amp_rewrite.numerics.emulate.fused_groups import find_fused
from amp_rewrite.numerics.emulate.insert import Inserter
from amp_rewrite.numerics.emulate.joined_biases import drop_unused, join_biases
from amp_rewrite.numerics.emulate.low_sums import Sums, sums_of
from amp_rewrite.numerics.emulate.model import emulate_typed, low_values
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.runtimes.engines import open_session, takes_low_arrays
from amp_rewrite.runtimes.ort.providers import check_form
from amp_rewrite.runtimes.session import Provider, RanNode
from amp_rewrite.targets import CPU


class Evaluator(Hinted):
    """Runs one model on an engine, mostly ONNX Runtime; the session is built once.

    Examples:
        >>> low = amp.rewrite("model.onnx").model
        >>> evaluator = amp.Evaluator(low, outputs=["h"])
        >>> evaluator.run({"x": np.zeros((1, 8), np.float32)})["h"].dtype
        dtype('float16')
    """

    def __init__(
        self,
        model: Source | TypedModel,
        *,
        emulate: bool = True,
        outputs: Iterable[str] | None = None,
        accumulate_low: Collection[str] | Sums = (),
        providers: Sequence[Provider] = (CPU,),
        threads: int = 0,
        options: Any = None,
        profile: bool = False,
        rounding: RoundingTable | None = None,
    ) -> None:
        """Load a model.

        Args:
            model: A path, an onnx_ir model or a ModelProto; not modified.
            emulate: Round every 16-bit value; otherwise providers compute these types as they do
                (the CPU provider mostly in float32).
            outputs: Names of values of the main graph to return, None for the graph's outputs.
            accumulate_low: Operator types whose sums are accumulated in their 16-bit type.
            providers: Execution providers, the preferred one first.
            threads: Threads inside an operator; 0 is OMP_NUM_THREADS, or ONNX Runtime's choice.
            options: An onnxruntime.SessionOptions instead of the default ones.
            profile: Time the nodes until `ran_nodes` is asked for them.
            rounding: What the emulated runtime rounds once; None rounds after every node.

        Raises:
            AmpError: The model is not valid, the engine cannot load it or is not installed, or
                `outputs` names no value.
        """
        emulate = arguments.switch("emulate", emulate)
        threads, profile = arguments.threads(threads), arguments.switch("profile", profile)
        check_form(providers)
        if not isinstance(rounding, RoundingTable | None):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptionError("rounding must be a table of what a runtime rounds once")
        typed = TypedModel.own(model)
        loaded = typed.model
        specs = feed_specs(loaded, typed.types)
        self.precisions = frozenset(dtype.name for dtype in low_values(typed.types).values())
        fused = None
        if emulate and rounding is not None:
            fused = find_fused(loaded, low_values(typed.types), rounding)
        sums = sums_of(accumulate_low) if emulate else {}
        unused = join_biases(loaded, typed.types, low_values(typed.types), sums) if sums else []
        self._fetches = choose_outputs(loaded, typed.types, outputs)
        drop_unused(unused)
        if emulate:
            emulate_typed(typed, accumulate_low=sums, keep_io_types=False, fused=fused)
        elif not takes_low_arrays(providers[0]):
            widen_boundary(loaded, typed.types)
        self._narrow = not emulate and takes_low_arrays(providers[0])
        self.inputs: Mapping[str, FeedSpec] = MappingProxyType(specs)
        self.outputs: tuple[str, ...] = tuple(fetch.name for fetch in self._fetches)
        self._session = open_session(
            loaded, providers=providers, options=options, threads=threads, profile=profile
        )

    def run(
        self, feeds: Mapping[str, Any], outputs: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Return value name -> array, in the type that the model gives the value.

        Args:
            feeds: Input name -> array (a list of arrays for a sequence), of the model's types.
            outputs: Which of `self.outputs` to return, None for all.

        Raises:
            DataError: A feed is missing, unknown, or of the wrong type or shape.
            RunError: ONNX Runtime cannot run the model on them.
        """
        wanted = self.outputs if outputs is None else arguments.texts("outputs", outputs)
        fetches = [f for f in self._fetches if f.name in wanted]
        if not fetches:
            return {}
        for name in feeds if isinstance(feeds, Mapping) else ():  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            if name not in self.inputs:
                expected = ", ".join(map(repr, self.inputs)) or "no feed"
                raise DataError(f"unknown feed {name!r}", expected=expected)
        checked = FedInputs(self.inputs).batch(feeds)
        if not self._narrow:
            checked = {name: widened(value) for name, value in checked.items()}
        results = self._session.run(checked, [fetch.output for fetch in fetches])
        return {f.name: narrowed(f, r) for f, r in zip(fetches, results, strict=True)}

    def ran_nodes(self) -> tuple[RanNode, ...]:
        """Return the nodes of the first run, which `profile` asked for; later runs are faster."""
        return self._session.ran_nodes()


def evaluate(
    model: Source,
    feeds: Mapping[str, Any],
    *,
    emulate: bool = True,
    outputs: Iterable[str] | None = None,
    accumulate_low: Collection[str] | Sums = (),
) -> dict[str, Any]:
    """Run a model on a CPU, rounding as 16-bit hardware would.

    Args:
        model: A path, an onnx_ir model or a ModelProto; not modified.
        feeds: Input name -> array, of the model's types.
        emulate: False computes as ONNX Runtime's CPU provider does, mostly in float32.
        outputs: Names of values of the main graph to return, None for the graph's outputs.
        accumulate_low: Operator types whose sums are accumulated in their 16-bit type.

    Returns:
        Value name -> array, in the type that the model gives the value (bfloat16 from ml_dtypes).
        To run many batches make an `Evaluator`: it loads the model once.

    Raises:
        AmpError: The model, a feed or an output name is wrong, or ONNX Runtime is not installed.

    Examples:
        >>> low = amp.rewrite("model.onnx").model
        >>> outputs = amp.evaluate(low, {"x": np.zeros((1, 8), np.float32)})
        >>> outputs["logits"].shape
        (1, 4)
    """
    evaluator = Evaluator(model, emulate=emulate, outputs=outputs, accumulate_low=accumulate_low)
    return evaluator.run(feeds)


def widen_boundary(model: ir.Model, types: Types) -> None:
    """Give a 16-bit model float32 inputs and outputs, in place: numpy has no bfloat16.

    The casts are inside the main graph; no number changes by them.
    """
    low = low_values(types)
    if low.keys().isdisjoint((*model.graph.inputs, *model.graph.outputs)):
        return
    insert = Inserter(model)
    for index, value in enumerate(list(model.graph.outputs)):
        if value in low:
            model.graph.outputs[index] = insert.retype_output(value, types[value], FLOAT32)
    for value in model.graph.inputs:
        constant = value.is_initializer()
        if value in low and not (constant and model.ir_version < FIRST_IR_WITH_OVERRIDES):
            insert.convert_input(value, types[value], low[value])
            set_element(value, FLOAT32)


class Fetch(NamedTuple):
    """One value to return: its name, the graph output that holds it, its type ("" if unknown)."""

    name: str
    output: str
    type: str


def choose_outputs(model: ir.Model, types: Types, names: Iterable[str] | None) -> list[Fetch]:
    """Make values of the main graph its only outputs, in place; None keeps those that it has.

    Raises:
        OptionError: A name is not that of a value of the main graph.
    """
    graph = model.graph
    if names is None:
        wanted = list(graph.outputs)
    else:
        listed = arguments.texts("outputs", names)
        made = (v for node in graph for v in node.outputs)
        values = {v.name: v for v in (*graph.inputs, *graph.initializers.values(), *made) if v.name}
        unknown = next((name for name in listed if name not in values), None)
        if unknown is not None:
            raise OptionError(
                "no such value in the main graph",
                found=repr(unknown),
                expected="the name of an input, a weight or a node's output",
            )
        wanted = [values[name] for name in listed]
    wanted = list(dict.fromkeys(wanted))
    free = AddedNames.of(model.graph)
    graph.outputs[:] = []
    fetches: list[Fetch] = []
    for value in wanted:
        output = value
        if value.producer() is None:  # a graph input or a weight cannot be an output everywhere
            name = free.cast(value.name or "", FLOAT32)
            output = ir.Value(name=name, type=value.type, shape=value.shape)
            node_name = free.part(name, "Identity")
            graph.append(ir.Node("", "Identity", [value], outputs=[output], name=node_name))
        graph.outputs.append(output)
        fetches.append(Fetch(value.name or "", output.name or "", types.get(value, "")))
        if output is not value and value in types:
            types[output] = types[value]
        if output.type is None and output in types:
            output.type = elements.to_ir(types[output])
    return fetches


def narrowed(fetch: Fetch, result: Any) -> Any:
    """Return a result in the type that the model gives it; the numbers are those already."""
    member = elements.element(fetch.type)
    dtype = dtypes.LOW.get("" if member is None else dtypes.dtype_name(member))
    if dtype is None or result is None:
        return result
    if isinstance(result, list):
        return [narrowed(fetch, item) for item in result]
    return result if result.dtype == dtype.numpy else to_low(result, dtype)
