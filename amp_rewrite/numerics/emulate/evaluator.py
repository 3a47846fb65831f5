"""Run a model once, or load it once and run it on many batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.elements import set_element
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.graph.io.load import Source
from amp_rewrite.kernels.kernel_table import table_of
from amp_rewrite.kernels.rounding_table import RoundingTable
from amp_rewrite.numerics.emulate.emulated_feeds import FeedSpec, check_feeds, feed_specs
from amp_rewrite.numerics.emulate.emulated_fetches import choose_outputs, narrowed
from amp_rewrite.numerics.emulate.fused_groups import find_fused
from amp_rewrite.numerics.emulate.insert import Inserter
from amp_rewrite.numerics.emulate.joined_biases import drop_unused, join_biases
from amp_rewrite.numerics.emulate.low_sums import Sums, sums_of
from amp_rewrite.numerics.emulate.model import emulate_typed, low_values
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.runtimes.engines import open_session, takes_low_arrays
from amp_rewrite.runtimes.ort.providers import check_form
from amp_rewrite.runtimes.session import Provider, RanNode, name_and_options
from amp_rewrite.targets import CPU


class Evaluator:
    """Runs one model on an engine, mostly ONNX Runtime; the session is built once.

    Example:
        evaluator = Evaluator("m.fp16.onnx")
        results = [evaluator.run(feeds) for feeds in batches]

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
            emulate: Round every float16 and bfloat16 value; otherwise the providers compute
                whatever they do for these types (the CPU provider: mostly float32).
            outputs: Names of values of the main graph to return, None for the graph's outputs.
            accumulate_low: See `emulate_model`.
            providers: Execution providers, the preferred one first.
            threads: Threads inside an operator; 0 is OMP_NUM_THREADS, or ONNX Runtime's choice.
            options: An onnxruntime.SessionOptions instead of the default ones.
            profile: Time the nodes until `ran_nodes` is asked for them.
            rounding: What the emulated runtime rounds once; None rounds behind every node.

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
        if name_and_options(providers[0])[0] == CPU:
            typed = _with_cpu_bodies(typed)
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
            loaded,
            providers=providers,
            options=options,
            threads=threads,
            profile=profile,
        )

    def run(
        self, feeds: Mapping[str, Any], outputs: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Return value name -> array, in the type that the model gives the value.

        Args:
            feeds: Input name -> array (a list of arrays for a sequence), of the model's types.
            outputs: Which of `self.outputs` to return, None for all. Those that are left out are
                not copied out of the runtime.

        Raises:
            OptionError: A feed is missing, unknown, or of the wrong type or shape.
            RunError: ONNX Runtime cannot run the model on them.
        """
        wanted = self.outputs if outputs is None else arguments.texts("outputs", outputs)
        fetches = [f for f in self._fetches if f.name in wanted]
        if not fetches:
            return {}
        checked = check_feeds(self.inputs, feeds)
        if self._narrow:
            checked = {name: _narrowed(self.inputs[name], v) for name, v in checked.items()}
        results = self._session.run(checked, [fetch.output for fetch in fetches])
        return {f.name: narrowed(f, r) for f, r in zip(fetches, results, strict=True)}

    def end_profiling(self) -> str:
        """Return the path of the profile that options with `enable_profiling` asked for."""
        return self._session.end_profiling()

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
    """Run a model on a CPU, rounding as the low-precision hardware would.

    Args:
        model: A path, an onnx_ir model or a ModelProto; not modified.
        feeds: Input name -> array, of the model's types.
        emulate: False runs the model as ONNX Runtime's CPU provider does: mostly in float32,
            whatever the model says.
        outputs: Names of values of the main graph to return, None for the graph's outputs.
        accumulate_low: See `emulate_model`.

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


def _with_cpu_bodies(typed: TypedModel) -> TypedModel:
    """Return a model with functions in place of operators that ONNX Runtime's CPU has not.

    It would refuse the model: com.microsoft::PackedMultiHeadAttention, say, has a kernel on CUDA
    alone. The model itself is changed.
    """
    model, cpu = typed.model, targets.of_provider(CPU)
    table = None if cpu is None else table_of(cpu)
    if not model.functions or table is None:
        return typed

    def lacks_kernel(function: ir.Function) -> bool:
        opset = model.graph.opset_imports.get(function.domain, 1)
        return not table.matching(function.domain, function.name, opset)

    if not any(lacks_kernel(function) for function in model.functions.values()):
        return typed
    inline(model, lacks_kernel)
    return TypedModel(model, spare=typed.spare)


def _narrowed(spec: FeedSpec, value: Any) -> Any:
    """Return an array in the type of its input, of which it holds numbers."""
    is_array = isinstance(value, np.ndarray) and spec.dtype is not None
    return value.astype(spec.dtype, copy=False) if is_array else value


def widen_boundary(model: ir.Model, types: Types) -> None:
    """Give a low-precision model float32 inputs and outputs: the runtime has no numpy bfloat16.

    The casts are inside the main graph, which is modified. A fed number that the low type has, and
    any result, are the same numbers in float32.
    """
    low = low_values(types)
    if low.keys().isdisjoint((*model.graph.inputs, *model.graph.outputs)):
        return
    insert = Inserter(model)
    for index, value in enumerate(list(model.graph.outputs)):
        if value in low:
            wide = insert.narrow_output(value, types[value], FLOAT32)
            model.graph.outputs[index] = wide
    for value in model.graph.inputs:
        constant = value.is_initializer()
        if value in low and not (constant and model.ir_version < FIRST_IR_WITH_OVERRIDES):
            insert.convert_input(value, types[value], low[value])
            set_element(value, FLOAT32)
