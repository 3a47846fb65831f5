"""One compiled form of a step: an ONNX Runtime session with its state bound twice."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.io.datafile import all_tensors, source_file
from amp_rewrite.graph.io.save import save, to_proto
from amp_rewrite.ort.device import Device, Provider
from amp_rewrite.ort.ort_values import to_ort_value
from amp_rewrite.ort.sessions import RunError, one_line
from amp_rewrite.train.step.step_info import StepInfo

States = Mapping[str, Any]
"""State name -> OrtValue."""

_IN_MEMORY = 1 << 28
"""Up to this many bytes of constants go to the runtime as one message, which is copied twice."""


class Program:
    """A model that ONNX Runtime has loaded, whose states stay where they are.

    Attributes:
        info: The description of the model: its inputs, states and fetches.
    """

    def __init__(
        self,
        model: ir.Model,
        info: StepInfo,
        sets: Sequence[States],
        *,
        runtime: Any,
        options: Any,
        providers: Sequence[Provider],
        device: Device,
        updates: bool = True,
    ) -> None:
        """Load a model and bind its states.

        Args:
            model: A step without defaults of states.
            info: Its description.
            sets: Two sets of states; run i reads set i and writes set 1 - i.
            runtime: The onnxruntime module.
            options: SessionOptions.
            providers: Execution providers.
            device: Where the states are.
            updates: Whether the model computes the next states.

        Raises:
            RunError: ONNX Runtime cannot load the model, or cannot start the preferred provider.
        """
        self.info = info
        self._runtime, self._device = runtime, device
        with one_line("ONNX Runtime cannot load the step"):
            self._session = runtime.InferenceSession(
                self._source(model), options, providers=list(providers)
            )
        _check_started(providers, self._session.get_providers())
        self._bindings = [
            self._bind(sets[i], sets[1 - i] if updates else None) for i in range(len(sets))
        ]

    def _source(self, model: ir.Model) -> bytes | str:
        tensors = list(all_tensors(model))
        external = any(source_file(t) is not None for t in tensors)
        if not external and sum(t.nbytes for t in tensors) <= _IN_MEMORY:
            return to_proto(model).SerializeToString()
        folder = tempfile.mkdtemp(prefix="amp_rewrite-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = Path(folder) / "step.onnx"
        save(model, path)
        return str(path)

    def _bind(self, states: States, following: States | None) -> Any:
        binding = self._session.io_binding()
        self._bind_fetches(binding)
        for state in self.info.states:
            binding.bind_ortvalue_input(state.name, states[state.name])
            if following is not None:
                binding.bind_ortvalue_output(state.output, following[state.name])
        return binding

    def _bind_fetches(self, binding: Any) -> None:
        """Let the runtime allocate the fetches on the host."""
        for output in self.info.fetches.values():
            binding.bind_output(output, "cpu")

    def run(self, current: int, feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Run once from the states of set `current`; return the fetches.

        Args:
            current: Which set of states to read.
            feeds: Data input -> array or OrtValue, checked.

        Raises:
            RunError: ONNX Runtime reports an error; the states of set `current` are as before.
        """
        binding = self._bindings[current]
        for name, tensor in feeds.items():
            value = to_ort_value(tensor, self._device, self._runtime.OrtValue)
            binding.bind_ortvalue_input(name, value)
        self._bind_fetches(binding)  # what the last run allocated has its shape
        with one_line("ONNX Runtime cannot run the step on these feeds"):
            self._session.run_with_iobinding(binding)
        if not self.info.fetches:
            return {}
        outputs = binding.get_outputs_as_ortvaluevector()
        return {
            name: np.array(outputs[index].numpy()) for index, name in enumerate(self.info.fetches)
        }

    def end_profiling(self) -> str:
        """End profiling, which the options began; return the path of the profile."""
        return self._session.end_profiling()


def _check_started(providers: Sequence[Provider], started: Sequence[str]) -> None:
    """Check that the runtime did not fall back to another device, which it does silently."""
    wanted = providers[0] if isinstance(providers[0], str) else providers[0][0]
    if wanted not in started:
        raise RunError(
            "ONNX Runtime cannot start the execution provider",
            where=wanted,
            found=f"it would use {', '.join(started)}",
            remedy="install the libraries that it needs, such as CUDA and cuDNN in the versions "
            "that onnxruntime.print_debug_info() names",
        )
