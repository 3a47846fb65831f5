"""Run a training step on ONNX Runtime, with its state kept on the device."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import onnx
import onnx_ir as ir

from amp_rewrite.emulate.runtime import RunError, import_runtime
from amp_rewrite.errors import OptionError
from amp_rewrite.graph import elements
from amp_rewrite.graph.load import Source
from amp_rewrite.graph.save import save
from amp_rewrite.train.checkpoint import check_fits, read_checkpoint, write_checkpoint
from amp_rewrite.train.device import CPU, Provider, device_of
from amp_rewrite.train.errors import FeedError
from amp_rewrite.train.export import with_weights
from amp_rewrite.train.feeds import Feeds, Inputs
from amp_rewrite.train.inference import inference_of
from amp_rewrite.train.info import StateInfo
from amp_rewrite.train.program import Program
from amp_rewrite.train.step import DEFAULT_FETCHES, read_step, whole_step
from amp_rewrite.train.tensors import empty, to_array, to_ort_value

if TYPE_CHECKING:
    from amp_rewrite.optimizers.train_op import TrainOp

Array = np.ndarray[Any, Any]
_FATAL = 4


class TrainingSession:
    """A training step and its state.

    The state lies in two sets of OrtValues on the device of the first provider. A step reads one
    set and writes the other, so that no step copies state and a failed step changes none.

    Attributes:
        info: The description of the step.
    """

    def __init__(
        self,
        source: TrainOp | Source,
        providers: Sequence[Provider] = (CPU,),
        *,
        threads: int = 0,
        seed: int = 0,
        options: Any = None,
    ) -> None:
        """Load a step with its initial state.

        Args:
            source: A TrainOp, or a step model or its file.
            providers: Execution providers, the preferred one first: names, or (name, options).
            threads: Threads inside an operator; 0 leaves the choice to ONNX Runtime.
            seed: Where the random numbers of Dropout begin; a step file has its own seed.
            options: An onnxruntime.SessionOptions instead of the default ones.

        Raises:
            RuntimeMissingError: ONNX Runtime is not installed.
            OptionError: A provider is not available.
            StepError: `source` is a model, but no step.
        """
        self._runtime = import_runtime()
        self._providers = list(providers)
        self._device = device_of(providers, self._runtime.get_available_providers())
        self._options = _options(self._runtime, threads) if options is None else options
        loaded = isinstance(source, str | bytes | os.PathLike | ir.Model | onnx.ModelProto)
        self._step = read_step(source) if loaded else whole_step(source, seed=seed)  # pyright: ignore[reportArgumentType]
        self.info = self._step.info
        self._states = {state.name: state for state in self.info.states}
        self._inputs = Inputs(self._step.model.graph, self.info.inputs, self._runtime.OrtValue)
        self._sets: tuple[dict[str, Any], dict[str, Any]] = self._initial_sets()
        self._current = 0
        self._programs: dict[tuple[bool, tuple[str, ...]], Program] = {}
        self._open = True

    def run(self, feeds: Feeds, fetches: str | Sequence[str] | None = None) -> dict[str, Array]:
        """Run one step: update the state, and return what was asked for.

        Args:
            feeds: Input name -> numpy array, OrtValue, or an object with `__dlpack__`.
            fetches: Names of values of the step; by default the loss. A state's name gives its
                value before the update.

        Returns:
            Name -> array on the host.

        Raises:
            FeedError: A feed is missing or unknown, or has the wrong type or shape.
            FetchError: A name is unknown.
            RunError: ONNX Runtime reports an error; the state is as before.
        """
        program = self._program(fetches, updates=True)
        found = program.run(self._current, self._check(feeds, program))
        self._current = 1 - self._current
        return found

    def evaluate(
        self, feeds: Feeds, fetches: str | Sequence[str] | None = None
    ) -> dict[str, Array]:
        """Compute values in inference mode with the current weights; no state changes.

        Dropout lets its data through, and BatchNormalization uses its running statistics.

        Args:
            feeds: As for `run`.
            fetches: Names of values of the forward pass; by default the loss.

        Raises:
            FeedError: As for `run`.
            FetchError: As for `run`.
            RunError: As for `run`.
        """
        program = self._program(fetches, updates=False)
        return program.run(self._current, self._check(feeds, program))

    def state_dict(self) -> dict[str, Array]:
        """Return a copy of every state tensor, by name."""
        self._check_open()
        current = self._sets[self._current]
        return {name: to_array(current[name], _dtype(s)) for name, s in self._states.items()}

    def load_state_dict(self, tensors: Mapping[str, Array]) -> None:
        """Set every state tensor.

        Raises:
            CheckpointError: The tensors are not exactly those of the step; no state has changed.
        """
        self._check_open()
        check_fits(tensors, self._states, "state dict")
        for name, array in tensors.items():
            self._set(name, array)

    def save(self, path: str | os.PathLike[str], progress: Mapping[str, Any] | None = None) -> None:
        """Write a checkpoint (safetensors), whole or not at all.

        Args:
            path: The file.
            progress: What to store with it, such as the epoch; anything that JSON can hold.

        Raises:
            SaveError: It cannot be written.
        """
        roles = {name: state.role for name, state in self._states.items()}
        write_checkpoint(path, self.state_dict(), roles, progress or {})

    def restore(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Continue from a checkpoint; return the progress that was stored with it.

        Training goes on bit for bit as if it had not been interrupted.

        Raises:
            CheckpointError: It cannot be read, or belongs to another model; no state has changed.
        """
        self._check_open()
        checkpoint = read_checkpoint(path)
        check_fits(checkpoint.tensors, self._states, path)
        for name, array in checkpoint.tensors.items():
            self._set(name, array)
        return checkpoint.progress

    def export(self, path: str | os.PathLike[str] | None = None) -> ir.Model:
        """Return the model that is trained, with its structure as loaded and the current weights.

        Args:
            path: Where to write it too, or None.

        Raises:
            SaveError: It cannot be written.
            StepError: A step file does not hold the structure.
        """
        model = with_weights(self._step.original(), self.state_dict())
        if path is not None:
            save(model, path)
        return model

    @property
    def learning_rate(self) -> float:
        """The learning rate; settable between steps."""
        state = self._learning_rate()
        return float(to_array(self._sets[self._current][state.name], _dtype(state)))

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        state = self._learning_rate()
        if not math.isfinite(value):
            raise OptionError(
                "the learning rate must be finite", found=value, remedy="set a number such as 1e-3"
            )
        self._set(state.name, np.asarray(value, _dtype(state).numpy()))

    @property
    def global_step(self) -> int | None:
        """How many steps were applied, or None if the step does not count them."""
        state = self.info.having("global_step")
        if state is None:
            return None
        return int(to_array(self._sets[self._current][state.name], _dtype(state)))

    def close(self) -> None:
        """Release the runtime's sessions and the state."""
        self._open = False
        self._programs.clear()
        self._sets = ({}, {})

    def __enter__(self) -> Self:
        """Return the session."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the session."""
        self.close()

    def _check_open(self) -> None:
        if not self._open:
            raise RunError("the session is closed", remedy="make a new TrainingSession")

    def _check(self, feeds: Feeds, program: Program) -> dict[str, Any]:
        if not isinstance(feeds, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise FeedError(
                "feeds must be a mapping from input names to arrays", found=type(feeds).__name__
            )
        return self._inputs.check(feeds, frozenset(program.info.inputs))

    def _learning_rate(self) -> StateInfo:
        self._check_open()
        state = self.info.having("learning_rate")
        if state is None:
            raise OptionError(
                "the step has no learning rate that could be set",
                found=", ".join(sorted({s.role for s in self.info.states})) or "no state",
                remedy="build it with an optimizer that has one and no schedule",
            )
        return state

    def _set(self, name: str, array: Array) -> None:
        value = to_ort_value(np.array(array), self._device, self._runtime.OrtValue)
        self._sets[self._current][name].update_inplace(value)

    def _initial_sets(self) -> tuple[dict[str, Any], dict[str, Any]]:
        first: dict[str, Any] = {}
        second: dict[str, Any] = {}
        ort_value = self._runtime.OrtValue
        for name, state in self._states.items():
            tensor = self._step.model.graph.initializers[name].const_value
            assert tensor is not None, "every state of a step has an initial value"
            dtype = _dtype(state)
            for states in (first, second):
                states[name] = empty(state.shape, dtype, self._device, ort_value)
            array = np.array(tensor.numpy(), dtype.numpy(), order="C")
            first[name].update_inplace(to_ort_value(array, self._device, ort_value))
        return first, second

    def _program(self, fetches: str | Iterable[str] | None, *, updates: bool) -> Program:
        self._check_open()
        if fetches is None:
            fetches = [n for n in DEFAULT_FETCHES if n in self.info.fetches]
            fetches = fetches if updates else fetches[:1]
        names = (fetches,) if isinstance(fetches, str) else tuple(dict.fromkeys(fetches))
        key = updates, names
        if key not in self._programs:
            whole = self._step.model, self.info, names
            model, info = self._step.cut(names, defaults=False) if updates else inference_of(*whole)
            self._programs[key] = Program(
                model,
                info,
                self._sets,
                runtime=self._runtime,
                options=self._options,
                providers=self._providers,
                device=self._device,
                updates=updates,
            )
        return self._programs[key]


def _dtype(state: StateInfo) -> ir.DataType:
    member = elements.element(state.dtype)
    assert member is not None, "a step describes its states by ONNX type names"
    return member


def _options(runtime: Any, threads: int) -> Any:
    options = runtime.SessionOptions()
    options.log_severity_level = _FATAL  # errors come as exceptions
    options.intra_op_num_threads = threads
    return options
