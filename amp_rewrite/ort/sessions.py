"""ONNX Runtime, imported when it is needed: sessions for models of any size, errors in one line."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir

from amp_rewrite.errors import RunError, RuntimeMissingError
from amp_rewrite.graph.io.datafile import all_tensors, source_file
from amp_rewrite.graph.io.save import save, to_proto
from amp_rewrite.targets import CPU

_IN_MEMORY = 1 << 28
"""Up to this many bytes of weights go to the session as one message, which is copied twice."""

_FATAL = 4


def import_runtime() -> Any:
    """Return the onnxruntime module.

    Raises:
        RuntimeMissingError: It is not installed.
    """
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise RuntimeMissingError(
            "running a model needs ONNX Runtime, which is not installed",
            remedy="pip install 'amp-rewrite[cpu]'",
        ) from error


class Session:
    """A loaded model, and the folder that it reads its weights from if it is large."""

    def __init__(
        self,
        model: ir.Model,
        *,
        providers: Sequence[str] = (CPU,),
        threads: int = 0,
        optimize: bool = True,
        lean: bool = False,
        what: str = "the model",
    ) -> None:
        """Load a model; it is not changed and not needed any more afterwards.

        Args:
            model: Any model.
            providers: Execution providers, the preferred one first.
            threads: Threads inside an operator; 0 leaves the choice to ONNX Runtime.
            optimize: Let ONNX Runtime fuse operators.
            lean: Free every value as soon as it can be, and keep no memory between runs.
            what: The model as errors call it.

        Raises:
            RuntimeMissingError: ONNX Runtime is not installed.
            RunError: It cannot load the model.
        """
        runtime = import_runtime()
        options = runtime.SessionOptions()
        options.log_severity_level = _FATAL  # errors come as exceptions
        options.intra_op_num_threads = threads
        if not optimize:
            options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if lean:
            options.enable_cpu_mem_arena = False
            options.execution_order = runtime.ExecutionOrder.PRIORITY_BASED
        folder = tempfile.mkdtemp(prefix="amp_rewrite-") if _is_large(model) else None
        if folder is not None:
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        source = _source(model, folder)
        self._what = what
        with one_line(f"ONNX Runtime cannot load {what}"):
            self._session = runtime.InferenceSession(source, options, providers=list(providers))
        self.inputs: tuple[str, ...] = tuple(i.name for i in self._session.get_inputs())
        self.overridable: tuple[str, ...] = tuple(
            i.name for i in self._session.get_overridable_initializers()
        )
        self.outputs: tuple[str, ...] = tuple(o.name for o in self._session.get_outputs())

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Return outputs in order, all of them by default.

        Raises:
            RunError: ONNX Runtime reports an error.
        """
        with one_line(f"ONNX Runtime cannot run {self._what} on these inputs"):
            return self._session.run(list(outputs or self.outputs), dict(feeds))


@contextmanager
def one_line(what: str) -> Generator[None]:
    """Turn the errors of ONNX Runtime into a RunError."""
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    kinds = tuple(
        kind
        for kind in vars(state).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    )
    try:
        yield
    except (*kinds, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RunError(what, found=lines[0][:500]) from error


def _is_large(model: ir.Model) -> bool:
    tensors = list(all_tensors(model))
    external = any(source_file(t) is not None for t in tensors)
    return external or sum(t.nbytes for t in tensors) > _IN_MEMORY


def _source(model: ir.Model, folder: str | None) -> bytes | str:
    if folder is None:
        return to_proto(model).SerializeToString()
    path = os.path.join(folder, "model.onnx")
    save(model, path)
    return path
