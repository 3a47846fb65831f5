"""ONNX Runtime's CPU provider as a function from feeds to arrays, with errors in one line."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from amp_rewrite.errors import DataError, GraphError, RuntimeMissingError
from amp_rewrite.graph.save import save, to_proto
from amp_rewrite.numerics.data import Array, Feeds

_QUIET = 4
"""Log severity "fatal": warnings about a probed model would say nothing about the user's."""


class Session:
    """A loaded model; `run` may be called any number of times."""

    def __init__(self, model: ir.Model, what: str = "the model") -> None:
        """Load a model.

        Args:
            model: The model; not modified.
            what: The model as errors call it.

        Raises:
            RuntimeMissingError: ONNX Runtime is not installed.
            GraphError: ONNX Runtime refuses the model.
        """
        runtime = _runtime()
        self._what = what
        options = runtime.SessionOptions()
        options.log_severity_level = _QUIET
        # A kernel's output buffer is dropped with the batch, not kept for the largest batch seen.
        options.enable_cpu_mem_arena = False
        # What measures a value runs right behind it, so that the value can be freed.
        options.execution_order = runtime.ExecutionOrder.PRIORITY_BASED
        self._session = _load(runtime, model, options, what)
        self._inputs = frozenset(i.name for i in self._session.get_inputs())
        self._optional = frozenset(i.name for i in self._session.get_overridable_initializers())
        self.outputs: tuple[str, ...] = tuple(o.name for o in self._session.get_outputs())

    def run(self, feeds: Feeds, outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Return the outputs for one batch.

        Raises:
            DataError: An input is missing or unknown, or the model rejects the batch.
        """
        self._check(feeds)
        names = list(self.outputs if outputs is None else outputs)
        try:
            found = self._session.run(names, dict(feeds))
        except Exception as error:
            raise DataError(
                f"{self._what} cannot be run on this data",
                found=" ".join(str(error).split())[:300],
                remedy="check names, types and shapes of the arrays",
            ) from error
        return dict(zip(names, found, strict=True))

    def _check(self, feeds: Feeds) -> None:
        missing = sorted(self._inputs - feeds.keys())
        unknown = [name for name in feeds if name not in self._inputs | self._optional]
        if missing or unknown:
            raise DataError(
                f"the data lack the input {missing[0]!r}"
                if missing
                else f"the data hold {unknown[0]!r}, which is no input of {self._what}",
                found=", ".join(sorted(feeds)) or "nothing",
                expected=", ".join(sorted(self._inputs)) or "no input",
            )


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise RuntimeMissingError(
            "ONNX Runtime is needed to run a model",
            remedy="pip install amp-rewrite[cpu]",
        ) from error
    return onnxruntime


def _load(runtime: Any, model: ir.Model, options: Any, what: str) -> Any:
    providers = ["CPUExecutionProvider"]
    try:
        if not _has_external_data(model):
            content = to_proto(model).SerializeToString()
            return runtime.InferenceSession(content, options, providers=providers)
        with tempfile.TemporaryDirectory(prefix="amp-rewrite-") as folder:
            path = Path(folder) / "model.onnx"
            save(model, path)
            return runtime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        if type(error).__module__.startswith("amp_rewrite"):
            raise
        raise GraphError(
            f"ONNX Runtime cannot load {what}", found=" ".join(str(error).split())[:300]
        ) from error


def _has_external_data(model: ir.Model) -> bool:
    tensors = (v.const_value for g in model.graphs() for v in g.initializers.values())
    return any(isinstance(t, ir.ExternalTensor) for t in tensors)
