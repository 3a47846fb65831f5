"""Sessions of OpenVINO: models that compute in the types that they say, on a CPU."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.dtypes import BFLOAT16, FLOAT16, FLOAT32
from amp_rewrite.errors import OptionError, RunError
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.graph.io.load import Source, load
from amp_rewrite.runtimes.model_source import model_source
from amp_rewrite.runtimes.openvino.package import (
    DEVICE,
    Array,
    core,
    import_runtime,
    one_line,
    to_array,
    to_tensor,
)
from amp_rewrite.runtimes.openvino.packed_heads import APART, is_as_long_as_heads, packs_heads
from amp_rewrite.runtimes.openvino.turned_weights import part_turned_weights
from amp_rewrite.runtimes.openvino.wide_arithmetic import (
    warn_of_wide_arithmetic,
    warn_of_wide_feeds,
)
from amp_rewrite.runtimes.session import RanNode, threads_of_environment
from amp_rewrite.targets import OPENVINO

HINT = "INFERENCE_PRECISION_HINT"
"""The property that says what float32 nodes are computed in."""

AS_TYPED = "f32"
"""The hint with which each node computes in its own type; OpenVINO's default is bf16, which makes
float32 nodes bfloat16 on a processor that has it, whatever the file says."""

_CACHE = "CACHE_DIR"
"""The property that names the folder in which OpenVINO keeps what it has compiled."""

_PRODUCER = "unknown"
"""For files without one: OpenVINO takes a file for a model by its first three fields, which it
wants to be different ones; two opsets in a row are not."""

_SEQUENCE = "util::Sequence"
"""How its messages begin to call what it made of any operator on sequences."""

_TYPES = {"f32": FLOAT32.name, "f16": FLOAT16.name, "bf16": BFLOAT16.name}
_KEYS = (_ORDER, _TIME, _OP, _TYPE, _COVERS) = (
    *("execOrder", "execTimeMcs", "layerType", "runtimePrecision", "originalLayersNames"),
)
"""The runtime model's entry for each node; the time is no number if it is 0."""


class Session:
    """A model that OpenVINO has loaded.

    Integers of 64 bits are computed in 32, and float64 in float32. An input with a default is a
    constant, which can be folded into what reads it, unless the session is told that it is fed.

    The attributes are those of `amp_rewrite.runtimes.session.Session`.
    """

    def __init__(
        self,
        model: Source,
        *,
        properties: Mapping[str, Any] | None = None,
        fed: Collection[str] = (),
        threads: int = 0,
        profile: bool = False,
        static: bool = False,
        what: str = "the model",
    ) -> None:
        """Load a model, as `amp_rewrite.runtimes.engines.open_session`.

        Args:
            model: Any model: a path, bytes, an onnx_ir model or a ModelProto.
            properties: Of OpenVINO, for its compile_model; by default nodes compute as typed. In
                the folder CACHE_DIR each version of OpenVINO gets one of its own.
            fed: Inputs with a default that are to be fed, too.
            threads: Threads; 0 is OMP_NUM_THREADS, or OpenVINO's choice.
            profile: Time the nodes until `ran_nodes` is asked for them.
            static: Compile anew for the shapes that `run` is given, if they change. With free
                shapes fewer nodes are computed together, and a Cast to bfloat16 is not rounded to
                nearest: 2026.4.1 cuts off half of what it should round up.
            what: The model as errors call it.
        """
        self._what, self._static, self._profile = what, static, profile
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._own: Binding | None = None
        self._properties: dict[str, Any] = {HINT: AS_TYPED, **(properties or {})}
        if _CACHE in self._properties:  # what one version has compiled is no other's
            version, folder = str(import_runtime().__version__), self._properties[_CACHE]
            if not isinstance(folder, str | Path):
                raise OptionError(
                    f"{_CACHE} must be a folder", found=repr(folder), expected="a path"
                )
            self._properties[_CACHE] = str(Path(folder, version.replace("/", "-")))
        if threads := threads or threads_of_environment():
            self._properties["INFERENCE_NUM_THREADS"] = threads
        device = core()
        plain, self._defaults = _plain(model, fed)
        warn_of_wide_arithmetic(plain.graph, what)
        self._packs = packs_heads(plain)
        inputs, wanted = plain.graph.inputs, plain.graph.outputs
        self.overridable: tuple[str, ...] = tuple(self._defaults)
        self.inputs: tuple[str, ...] = tuple(
            v.name or "" for v in inputs if not v.is_initializer() and v.name not in self._defaults
        )
        self.outputs: tuple[str, ...] = tuple(v.name or "" for v in wanted)
        self._dtypes = {v.name or "": None if v.dtype is None else v.dtype.numpy() for v in wanted}
        source = model_source(plain, self)
        try:
            with one_line(f"OpenVINO cannot load {what}"):
                self._read = device.read_model(source)
            self._compile()
        except RunError as error:
            raise _placed(error, plain) from error.__cause__

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Array]:
        """Return outputs in order, all of them by default, as copies."""
        failure = f"OpenVINO cannot run {self._what} on these inputs"
        missing = [name for name in self.inputs if name not in feeds]
        if missing:  # it would read whatever is there
            raise RunError(failure, found=f"no {missing[0]!r}", expected=", ".join(self.inputs))
        warn_of_wide_feeds(feeds)
        if self._static:
            self._compile_for({name: np.shape(value) for name, value in feeds.items()})
        # made when it is needed: OpenVINO gives each binding memory for all inputs and outputs
        binding = self._own = self._own or self.bind()
        with one_line(failure):
            for name, value in {**self._defaults, **feeds}.items():
                binding.read(name, value, shared=False)
        binding.run(failure)
        return [np.array(array) for array in binding.outputs(outputs or self.outputs)]

    def bind(self) -> Binding:
        """Return a new binding of the inputs and outputs; there may be several."""
        binding = Binding(self._compiled.create_infer_request(), self._inputs, self._dtypes)
        for name, value in self._defaults.items():
            binding.read(name, value, shared=False)
        return binding

    def ran_nodes(self) -> tuple[RanNode, ...]:
        """Return the nodes that ran, in order, and load the model again without profiling.

        A node inside a subgraph is part of the one that holds it; one that took less than a
        microsecond is not told of. A time is the mean of all runs.
        """
        if not self._profile:
            return ()
        infos = [node.get_rt_info() for node in self._compiled.get_runtime_model().get_ops()]
        told = [
            {key: str(info[key].astype(str)) if key in info else "" for key in _KEYS}
            for info in infos
        ]
        ran = [info for info in told if info[_TIME].isdigit()]
        self._profile = False
        self._compile()
        return tuple(_ran(info) for info in sorted(ran, key=lambda info: int(info[_ORDER])))

    def end_profiling(self) -> str:
        """Refuse: OpenVINO writes no profile."""
        raise OptionError("OpenVINO writes no profile", remedy="ask for profile and ran_nodes")

    def _compile_for(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Compile for shapes, or for free ones if OpenVINO cannot compile the model for these."""
        if not self._read.is_dynamic() or shapes == self._shapes:
            return
        self._shapes = shapes
        try:
            self._compile()
        except RunError:
            self._static = False
            self._compile()

    def _compile(self) -> None:
        """Compile the model that was read; earlier bindings are of the compiled one before."""
        properties = {**self._properties, "PERF_COUNT": self._profile}
        with one_line(f"OpenVINO cannot load {self._what}"):
            model = self._read
            if self._static and self._shapes:
                model = model.clone()
                names = {name for port in model.inputs for name in port.get_names()}
                model.reshape({n: list(shape) for n, shape in self._shapes.items() if n in names})
            if self._packs and is_as_long_as_heads(model):
                properties = {**APART, **properties}
            self._compiled = core().compile_model(model, DEVICE, properties)
        ports = {name for port in self._compiled.inputs for name in port.get_names()}
        self._inputs = {name: name in ports for name in (*self.inputs, *self.overridable)}
        self._own = None


class Binding:
    """The arrays that are a session's inputs and outputs; they stay bound from run to run."""

    def __init__(
        self,
        request: Any,
        inputs: Mapping[str, bool],
        outputs: Mapping[str, np.dtype[Any] | None],
    ) -> None:
        """Take an openvino.InferRequest, inputs and whether they are read, and outputs' types."""
        self._request, self._inputs, self._outputs = request, inputs, outputs
        self._written: dict[str, Array] = {}
        self._memory: dict[str, Array] = {}

    def read(self, name: str, value: Any, *, shared: bool = True) -> None:
        """Bind an array that an input is read from; it is not copied.

        If it is `shared`, later runs see what is written into it; it is contiguous and writable.
        """
        if name not in self._inputs:
            raise OptionError(
                "the session has no such input to feed",
                where=name,
                expected=", ".join(self._inputs) or "no input",
            )
        if self._inputs[name]:
            with one_line(f"OpenVINO cannot read the input {name}"):
                self._bind(name, value, shared=shared)

    def write(self, name: str, value: Array) -> None:
        """Bind an array that an output is written to: contiguous, writable, of its shape."""
        with one_line(f"OpenVINO cannot write the output {name}"):
            self._bind(name, value, shared=True)
        self._written[name] = value

    def allocate(self, name: str) -> None:
        """Let every run allocate an output, as it does unless one is bound."""
        if self._written.pop(name, None) is not None:
            raise OptionError("the output is bound already", where=name, remedy="bind it anew")

    def run(self, failure: str) -> None:
        """Run the session; `failure` begins the text of a RunError."""
        with one_line(failure):
            self._request.infer(share_outputs=True)  # by default it returns copies of all

    def outputs(self, names: Iterable[str]) -> list[Array]:
        """Return bound arrays, or views of OpenVINO's memory; the next run overwrites both."""
        return [self._output(name) for name in names]

    def _bind(self, name: str, value: Any, *, shared: bool) -> None:
        tensor, memory = to_tensor(value, shared=shared)
        self._request.set_tensor(name, tensor)
        self._memory[name] = memory  # which the tensor does not keep

    def _output(self, name: str) -> Array:
        if name in self._written:
            return self._written[name]
        return to_array(self._request.get_tensor(name), self._outputs[name])


def _plain(source: Source, fed: Collection[str]) -> tuple[ir.Model, dict[str, Array]]:
    """Return a model that OpenVINO takes, and the defaults that inputs had.

    Model-local functions are inlined. A default makes a constant of an input, so it is removed from
    an input that is fed.
    """
    model = load(source)
    inline(model, lambda _: True)
    model.producer_name = model.producer_name or _PRODUCER
    defaults: dict[str, Array] = {}
    for value in model.graph.inputs:
        name = value.name or ""
        if name in fed and value.is_initializer() and value.const_value is not None:
            defaults[name] = value.const_value.numpy()
            del model.graph.initializers[name]
    part_turned_weights(model)
    return model, defaults


def _placed(error: RunError, model: ir.Model) -> RunError:
    """Return an error with the first node of an operator that it names."""
    for node in model.graph.all_nodes():
        operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        pattern = rf"(?<![\w.]){re.escape(operator)}(-\d+)?(?![\w.])"
        if "Sequence" in operator:
            pattern += f"|{_SEQUENCE}"
        if re.search(pattern, error.found or ""):
            name = node.name or next((v.name for v in node.outputs if v.name), "")
            return RunError(
                error.what,
                where=f"node {name!r} ({operator})",
                found=error.found,
                remedy="run it on ONNX Runtime, or keep the node in float32 if that one loads",
            )
    return error


def _ran(info: Mapping[str, str]) -> RanNode:
    covers = tuple(name for name in info[_COVERS].split(",") if name)
    type_ = _TYPES.get(info[_TYPE], info[_TYPE])
    name = covers[0] if covers else ""
    return RanNode(name, info[_OP], OPENVINO, int(info[_TIME]), type_, covers)
