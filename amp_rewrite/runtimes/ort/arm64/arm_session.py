"""Sessions on an Arm processor: ONNX Runtime's CPU provider, on this machine or an emulated one."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import RunError
from amp_rewrite.runtimes.model_source import model_source
from amp_rewrite.runtimes.ort.arm64.machine import Machine, is_arm, machine
from amp_rewrite.runtimes.ort.arm64.worker import packed, unpacked
from amp_rewrite.runtimes.ort.profiles import read_profile
from amp_rewrite.runtimes.ort.sessions import Session as OrtSession
from amp_rewrite.runtimes.ort.sessions import session_options
from amp_rewrite.runtimes.session import Binding, RanNode, threads_of_environment
from amp_rewrite.targets import ARM64, CPU


def open_arm64(
    model: ir.Model,
    *,
    entries: Mapping[str, Any],
    threads: int = 0,
    profile: bool = False,
    what: str = "the model",
) -> NativeSession | EmulatedSession:
    """Load a model on an Arm processor.

    Args:
        model: Any model; it is not changed and not needed any more afterwards.
        entries: Entries of a session's configuration, such as the switch for bfloat16 products,
            `mlas.enable_gemm_fastmath_arm64_bfloat16`.
        threads: Threads inside an operator; 0 is the runtime's choice.
        profile: Time the nodes until `ran_nodes` is asked for them.
        what: The model as errors call it.

    Raises:
        OptionError: There is no Arm processor, neither real nor emulated.
        RunError: The runtime cannot load the model.
    """
    texts = {name: str(value) for name, value in entries.items()}
    if not is_arm():
        return EmulatedSession(model, machine(), texts, threads, profile=profile, what=what)
    options = session_options(threads=threads)
    for name, text in texts.items():
        options.add_session_config_entry(name, text)
    return NativeSession(model, providers=[CPU], options=options, profile=profile, what=what)


class NativeSession(OrtSession):
    """A session of the CPU provider on an Arm machine."""

    def ran_nodes(self) -> tuple[RanNode, ...]:
        """Return the nodes that ran, of this target's provider."""
        return tuple(map(_named, super().ran_nodes()))


class EmulatedSession:
    """A session in the process of an emulated Arm processor.

    Attributes:
        inputs: The names of the inputs that must be fed.
        overridable: The names of those that have a default.
        outputs: The names of the outputs.
    """

    def __init__(
        self,
        model: ir.Model,
        machine: Machine,
        entries: Mapping[str, str],
        threads: int,
        *,
        profile: bool,
        what: str,
    ) -> None:
        """Load a model.

        Raises:
            RunError: ONNX Runtime cannot load it.
        """
        self._machine, self._what, self._number = machine, what, machine.number()
        prefix = ""
        if profile:
            folder = tempfile.mkdtemp(prefix="amp_rewrite-")
            self._forget = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            prefix = str(Path(folder, "run"))
        source = model_source(model, self)
        asked = (
            self._number,
            source,
            CPU,
            threads or threads_of_environment(),
            prefix,
            dict(entries),
        )
        failure = f"ONNX Runtime on Arm cannot load {what}"
        self.inputs: tuple[str, ...]
        self.overridable: tuple[str, ...]
        self.outputs: tuple[str, ...]
        ends = map(tuple, machine.ask(failure, "load", *asked))
        self.inputs, self.overridable, self.outputs = ends
        weakref.finalize(self, _close, machine, self._number)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Return outputs in order, all of them by default.

        Raises:
            RunError: ONNX Runtime reports an error.
        """
        failure = f"ONNX Runtime on Arm cannot run {self._what} on these inputs"
        packed_feeds = {name: packed(value) for name, value in feeds.items()}
        names = list(outputs or self.outputs)
        return [
            unpacked(v)
            for v in self._machine.ask(failure, "run", self._number, names, packed_feeds)
        ]

    def bind(self) -> Binding:
        """Return a new binding of the inputs and outputs, whose tensors are numpy arrays."""
        return BoundArrays(self)

    def end_profiling(self) -> str:
        """End profiling; return the path of the profile."""
        return self._machine.ask("there is no profile", "end_profiling", self._number)

    def ran_nodes(self) -> tuple[RanNode, ...]:
        """Return the nodes that ran until now, in order, and end profiling."""
        nodes = read_profile(self.end_profiling())
        self._forget()
        return tuple(map(_named, nodes))


class BoundArrays:
    """The numpy arrays that are a session's inputs and outputs; they stay bound from run to run."""

    def __init__(self, session: EmulatedSession) -> None:
        """Begin with nothing bound."""
        self._session = session
        self._read: dict[str, Any] = {}
        self._written: dict[str, Any] = {}
        self._found: dict[str, Any] = {}

    def read(self, name: str, value: Any) -> None:
        """Bind an array that an input is read from."""
        self._read[name] = value

    def write(self, name: str, value: Any) -> None:
        """Bind an array that an output is written to."""
        self._written[name] = value

    def allocate(self, name: str) -> None:
        """Let every run allocate an output, whose shape may differ from run to run."""
        self._written[name] = None

    def run(self, failure: str) -> None:
        """Run the session.

        Raises:
            RunError: ONNX Runtime reports an error.
        """
        names = list(self._written)
        self._found = dict(zip(names, self._session.run(self._read, names), strict=True))
        for name, array in self._written.items():
            if array is not None:
                np.copyto(array, self._found[name])
                self._found[name] = array

    def outputs(self, names: Iterable[str]) -> list[Any]:
        """Return the arrays of outputs, as the last run left them."""
        return [self._found[name] for name in names]


def _named(node: RanNode) -> RanNode:
    return replace(node, provider=ARM64) if node.provider == CPU else node


def _close(machine: Machine, number: int) -> None:
    """Let the worker forget a model, unless it has ended."""
    if not machine.has_ended:
        with suppress(RunError):
            machine.ask("the model is not forgotten", "close", number)
