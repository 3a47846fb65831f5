"""A model that is loaded once and run on many batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from amp_rewrite.emulate.boundary import widen_boundary
from amp_rewrite.emulate.emulated_feeds import FeedSpec, check_feeds, feed_specs
from amp_rewrite.emulate.emulated_fetches import choose_outputs, narrowed
from amp_rewrite.emulate.model import emulate_model
from amp_rewrite.graph.infer import infer_types
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.ort.sessions import Session, session_options
from amp_rewrite.targets import CPU


class Evaluator:
    """Runs one model on ONNX Runtime; the session is built once.

    Example:
        evaluator = Evaluator("m.fp16.onnx")
        results = [evaluator.run(feeds) for feeds in batches]
    """

    def __init__(
        self,
        model: Source,
        *,
        emulate: bool = True,
        outputs: Iterable[str] | None = None,
        accumulate_low: Collection[str] = (),
        providers: Sequence[str] = (CPU,),
        threads: int = 0,
    ) -> None:
        """Load a model.

        Args:
            model: A path, an onnx_ir model or a ModelProto; not modified.
            emulate: Round every float16 and bfloat16 value; otherwise the providers compute
                whatever they do for these types (the CPU provider: mostly float32).
            outputs: Names of values of the main graph to return, None for the graph's outputs.
            accumulate_low: See `emulate_model`.
            providers: Execution providers, the preferred one first.
            threads: Threads inside an operator; 0 leaves the choice to ONNX Runtime.

        Raises:
            AmpError: The model is not valid, ONNX Runtime cannot load it or is not installed, or
                `outputs` names no value.
        """
        loaded = load(model)
        types = infer_types(loaded)
        specs = feed_specs(loaded, types)
        self._fetches = choose_outputs(loaded, types, outputs)
        if emulate:
            loaded = emulate_model(loaded, accumulate_low=accumulate_low, keep_io_types=False)
        else:
            widen_boundary(loaded, types)
        self.inputs: Mapping[str, FeedSpec] = MappingProxyType(specs)
        self.outputs: tuple[str, ...] = tuple(fetch.name for fetch in self._fetches)
        self._session = Session(
            loaded, providers=providers, options=session_options(threads=threads)
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
        fetches = [f for f in self._fetches if outputs is None or f.name in outputs]
        if not fetches:
            return {}
        checked = check_feeds(self.inputs, feeds)
        results = self._session.run(checked, [fetch.output for fetch in fetches])
        return {f.name: narrowed(f, r) for f, r in zip(fetches, results, strict=True)}
