"""Checkpoints with a loss scale and steps without one, and the other way round."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.errors import AmpWarning, CheckpointError
from amp_rewrite.training.loss_scaling.loss_scale import PREFIX, ROLES, LossScaleState
from amp_rewrite.training.session.checkpoint import check_fits
from amp_rewrite.training.step.step_info import StateInfo

Array = np.ndarray[Any, Any]

_NAME = re.compile(rf"{PREFIX}(?:{'|'.join(LossScaleState._fields)})(?:_\d+)?")
"""The names of the states of a loss scale; numbered if a model has several."""


def state_tensors(tensors: Mapping[str, Array], where: object) -> Mapping[str, Array]:
    """Return what is to become the states of a session.

    Raises:
        CheckpointError: It is not a mapping from names.
    """
    if not isinstance(tensors, Mapping) or not all(isinstance(k, str) for k in tensors):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise CheckpointError(
            "the states must be a mapping from their names to arrays",
            where=where,
            found=f"an object of type {type(tensors).__name__}",
            remedy="pass what state_dict returned",
        )
    return tensors


def fitted(
    tensors: Mapping[str, Array],
    states: Mapping[str, StateInfo],
    initial: Mapping[str, ir.TensorProtocol],
    where: str | os.PathLike[str],
) -> dict[str, Array]:
    """Return one tensor for each state of a step.

    Tensors of a loss scale that the step does not have are left out. Those that are missing get
    their initial values, with a warning. All others must be there.

    Args:
        tensors: State name -> array.
        states: The states of the step.
        initial: Their initial values.
        where: The file, for messages.

    Raises:
        CheckpointError: The other tensors are not exactly those of the step.
    """
    found = {k: v for k, v in tensors.items() if k in states or not _NAME.fullmatch(k)}
    missing = [k for k, state in states.items() if state.role in ROLES and k not in found]
    found |= {name: np.array(initial[name].numpy()) for name in missing}
    check_fits(found, states, where)
    if missing:
        scales = [found[name].item() for name in missing if states[name].role == ROLES[0]]
        value = f", {scales[0]:g}" if scales else ""
        warnings.warn(
            f"{where}: it has no loss scale ({', '.join(missing)}); the loss scale restores with "
            f"the initial one{value}",
            AmpWarning,
            stacklevel=4,
        )
    return found
