"""Sessions for models of any size, with errors in one line."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from amp_rewrite.dtypes import dtype_name
from amp_rewrite.errors import OptionError
from amp_rewrite.graph import elements
from amp_rewrite.runtimes.model_source import model_message
from amp_rewrite.runtimes.ort.device import HOST, Device, device_of, load_libraries
from amp_rewrite.runtimes.ort.providers import check_started, starting, use_plugins
from amp_rewrite.runtimes.ort.runtime import import_runtime, one_line
from amp_rewrite.runtimes.ort.time_limit import check_time, limited_run
from amp_rewrite.runtimes.session import Provider, RanNode, threads_of_environment
from amp_rewrite.targets import CPU

_LEFT_OUT = "optimization.disable_specified_optimizers"
_FATAL = 4

_RAN = "_kernel_time"
"""The suffix of a node's name in the profile where it tells how long its kernel ran."""

FAILING = ("DivMulFusion",)
"""Optimisations of ONNX Runtime 1.32 that fail on valid models. This one makes x / d of x * (1 / d)
and then reads what an Identity, Dropout or Cast in front of x made, which is gone."""

_COPYING = ("ConstantFolding", "FuseFp16InitializerToFp32NodeTransformer")
"""Optimisations that compute what depends on weights alone; the second copies them in float32."""

_FOLDER = "session.model_external_initializers_file_folder_path"
"""The option that says where the weights of a model lie that comes as a message."""


def session_options(
    *,
    threads: int = 0,
    memory_patterns: bool = True,
    lean: bool = False,
    leave_out: Sequence[str] = (),
    copies_weights: bool = True,
    optimises: bool = True,
) -> Any:
    """Return onnxruntime.SessionOptions.

    Args:
        threads: Threads inside an operator; 0 is what the environment variable OMP_NUM_THREADS
            says, or else leaves the choice to ONNX Runtime.
        memory_patterns: Reserve in one block what the last run of the same shapes needed.
        lean: Free every value as soon as it can be, and keep no memory between runs.
        leave_out: Optimisations that are not made.
        copies_weights: Copy weights in the layout of kernels, and compute what depends on them
            alone. Of 3 GiB that takes 10 s and 3 GiB of memory, and saves .2 s a run.
        optimises: Let ONNX Runtime optimise the graph, half of the load of one of 1,000 nodes.
    """
    runtime = import_runtime()
    options = runtime.SessionOptions()
    options.log_severity_level = _FATAL  # errors come as exceptions
    options.intra_op_num_threads = threads or threads_of_environment()
    options.enable_mem_pattern = memory_patterns
    if lean or not copies_weights:
        options.enable_cpu_mem_arena = False
    if lean:
        options.execution_order = runtime.ExecutionOrder.PRIORITY_BASED
    if not copies_weights:
        leave_out = (*leave_out, *_COPYING)
        options.add_session_config_entry("session.disable_prepacking", "1")
    if not optimises:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if leave_out:
        options.add_session_config_entry(_LEFT_OUT, ";".join(leave_out))
    return options


def check_options(options: object) -> None:
    """Refuse an object that a user passed for SessionOptions if it is another one."""
    if not isinstance(options, import_runtime().SessionOptions):
        raise OptionError(
            "not the options of a session",
            found=f"an object of type {type(options).__name__}",
            expected="an onnxruntime.SessionOptions",
            remedy="leave options out",
        )


class Session:
    """A model that ONNX Runtime has loaded; see `amp_rewrite.runtimes.session.Session`."""

    def __init__(
        self,
        model: ir.Model,
        *,
        providers: Sequence[Provider] = (CPU,),
        options: Any = None,
        profile: bool = False,
        what: str = "the model",
    ) -> None:
        """Load a model, as `amp_rewrite.runtimes.engines.open_session`."""
        runtime = import_runtime()
        load_libraries(device_of(providers))
        options = session_options() if options is None else options
        if profile:
            folder = tempfile.mkdtemp(prefix="amp_rewrite-")
            self._forget = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(folder, "run"))
        source, folder = model_message(model, self)
        if folder is not None:
            options.add_session_config_entry(_FOLDER, folder)
        self._what = what
        plugins = use_plugins(options, providers)
        named = None if plugins else list(providers)
        check_time()
        with starting(providers), one_line(f"ONNX Runtime cannot load {what}"):
            # a provider that fails is an error, not a line on stdout and another provider
            self._session = runtime.InferenceSession(
                source, options, providers=named, enable_fallback=int(not plugins)
            )
        check_started(providers, self._session.get_providers())
        self.inputs: tuple[str, ...] = tuple(i.name for i in self._session.get_inputs())
        self.overridable: tuple[str, ...] = tuple(
            i.name for i in self._session.get_overridable_initializers()
        )
        self.outputs: tuple[str, ...] = tuple(o.name for o in self._session.get_outputs())

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Return outputs in order, all by default; OutOfTimeError if a limit ended the run."""
        names, failed = list(outputs or self.outputs), f"cannot run {self._what} on these inputs"
        with limited_run() as options, one_line(f"ONNX Runtime {failed}"):
            return self._session.run(names, dict(feeds), options)

    def bind(self) -> Binding:
        """Return a new binding of the inputs and outputs; there may be several."""
        return Binding(self._session)

    def end_profiling(self) -> str:
        """End profiling, which the options began; return the path of the profile."""
        return self._session.end_profiling()

    def ran_nodes(self) -> tuple[RanNode, ...]:
        """Return the nodes that ran until now, in order, and end profiling.

        Nodes inside subgraphs are there once a run.
        """
        events = json.loads(Path(self.end_profiling()).read_text("utf-8"))
        self._forget()
        ran = (e for e in events if e.get("cat") == "Node" and e["name"].endswith(_RAN))
        return tuple(map(_ran, ran))


def _ran(event: Mapping[str, Any]) -> RanNode:
    name, told = event["name"].removesuffix(_RAN), event["args"]
    took = int(event["dur"])
    return RanNode(name, told["op_name"], told["provider"], took, _type(told), (name,))


def _type(told: Mapping[str, Any]) -> str:
    """Return the element type of the first output of a node, as the profile tells it."""
    for shaped in told.get("output_type_shape", []):
        for spelled in shaped:
            number = elements.element(f"tensor({spelled})")
            return spelled if number is None else dtype_name(number)
    return ""


class Binding:
    """The OrtValues that are a session's inputs and outputs; they stay bound from run to run."""

    def __init__(self, session: Any) -> None:
        """Begin with nothing bound."""
        self._session, self._binding = session, session.io_binding()
        self._copies = session.get_providers() != [CPU]
        self._read: dict[str, Any] = {}
        self._order: dict[str, int] = {}
        self._allocated: dict[str, Device] = {}

    def read(self, name: str, value: Any) -> None:
        """Bind an OrtValue that an input is read from.

        If a node on another device reads it, ONNX Runtime copies it when it is bound, not when the
        session runs. So it is bound anew for every run, unless there is one device only.
        """
        if self._copies:
            self._read[name] = value
        else:
            self._binding.bind_ortvalue_input(name, value)

    def write(self, name: str, value: Any) -> None:
        """Bind an OrtValue that an output is written to."""
        self._order.setdefault(name, len(self._order))
        self._binding.bind_ortvalue_output(name, value)

    def allocate(self, name: str, device: Device = HOST) -> None:
        """Let every run allocate an output, whose shape may differ from run to run."""
        self._order.setdefault(name, len(self._order))
        self._allocated[name] = device
        self._bind_allocated(name)

    def run(self, failure: str) -> None:
        """Run the session; `failure` begins the text of a RunError."""
        for name in self._allocated:  # what the last run allocated has its shape
            self._bind_allocated(name)
        with one_line(failure):
            for name, value in self._read.items():
                self._binding.bind_ortvalue_input(name, value)
            self._session.run_with_iobinding(self._binding)

    def outputs(self, names: Iterable[str]) -> list[Any]:
        """Return the OrtValues of outputs, as the last run left them."""
        ort_value = import_runtime().OrtValue
        values = self._binding.get_outputs_as_ortvaluevector()
        return [ort_value(values[self._order[name]]) for name in names]

    def _bind_allocated(self, name: str) -> None:
        device = self._allocated[name]
        self._binding.bind_output(name, device.kind, device.index)
