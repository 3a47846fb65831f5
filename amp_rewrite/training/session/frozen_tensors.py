"""The weights and statistics that a step does not train: constants of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import CheckpointError, StepError
from amp_rewrite.graph.added import origin
from amp_rewrite.training.step.step import Step

Array = np.ndarray[Any, Any]


class FrozenTensors:
    """What of the model that is trained a step holds as constants.

    Attributes:
        replaced: Name -> what a checkpoint has put in its place; a session saves and exports it.
    """

    def __init__(self, step: Step) -> None:
        """Begin with the model's own; `step` is changed by `replace`."""
        self._step = step
        self.replaced: dict[str, Array] = {}

    @cached_property
    def kinds(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name -> shape and element type, as the model has them."""
        try:
            model = self._step.original()
        except StepError:
            return {}  # a training graph that was made elsewhere
        states = {state.name for state in self._step.info.states}
        tensors = {k: v.const_value for k, v in model.graph.initializers.items()}
        return {
            name: (tuple(int(d) for d in tensor.shape.numpy()), tensor.dtype.numpy().name)
            for name, tensor in tensors.items()
            if tensor is not None and name not in states
        }

    def fitting(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Return those of tensors that can take the place of one here."""
        return {
            name: array
            for name, array in tensors.items()
            if self.kinds.get(name)
            == (np.shape(array), getattr(array, "dtype", np.dtype("O")).name)
        }

    def replace(self, tensors: Mapping[str, Array], where: object) -> None:
        """Put what `fitting` returned in the place of constants; what was compiled before is stale.

        Raises:
            CheckpointError: The step stores one in a type that cannot hold its numbers; nothing is
                replaced then.
        """
        stored = {
            value: _stored(tensors[origin(name)], value, where)
            for name, value in self._step.model.graph.initializers.items()
            if origin(name) in tensors
        }
        for value, tensor in stored.items():
            value.const_value = tensor
        self.replaced.update(tensors)


def _stored(array: Array, value: ir.Value, where: object) -> ir.TensorProtocol:
    """Return a tensor in the type in which a step stores it."""
    assert value.dtype is not None, "an initializer has a type"
    with np.errstate(over="ignore"):
        converted = array.astype(value.dtype.numpy())
    if np.isfinite(array).all() and not np.isfinite(converted.astype(np.float64)).all():
        raise CheckpointError(
            f"the frozen {origin(str(value.name))!r} is stored in a type that cannot hold it",
            where=where,
            found=f"magnitudes up to {np.abs(array).max():.3g}",
            expected=value.dtype.name.lower(),
            remedy="build the step from a model that has these weights",
        )
    return ir.tensor(converted, dtype=value.dtype, name=value.name)
