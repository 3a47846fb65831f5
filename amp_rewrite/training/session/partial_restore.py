"""What of a checkpoint becomes the states of a step: all of it, or what fits by name."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base.printable import one_line
from amp_rewrite.errors import CheckpointError, warn
from amp_rewrite.training.loss_scaling.loss_scale import PREFIX, ROLES, LossScaleState
from amp_rewrite.training.optimizers.slots import Slot
from amp_rewrite.training.optimizers.train_op import COUNT
from amp_rewrite.training.step.step import Step
from amp_rewrite.training.step.step_info import StateInfo

Array = np.ndarray[Any, Any]

_SHOWN = 3
_NUMBER = re.compile(r"_\d+$")
_NAME = re.compile(rf"{PREFIX}(?:{'|'.join(LossScaleState._fields)})(?:_\d+)?")
"""The names of the states of a loss scale; numbered if a model has several."""


@dataclass(frozen=True)
class Restored:
    """What a session took from a checkpoint or a state dict.

    Attributes:
        taken: The names of what was taken, frozen weights included.
        left: Name -> why it was not taken.
        kept: The states that it lacks, or has in another shape; they stay as they were.
        begun: The averages of taken weights that it lacks; they begin anew, at those weights.
    """

    taken: tuple[str, ...]
    left: Mapping[str, str]
    kept: tuple[str, ...]
    begun: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return one line, for much is in it."""
        numbers = f"{len(self.taken)} tensors taken, {len(self.left)} left"
        return one_line(self, f"{numbers}; {len(self.kept)} states kept, {len(self.begun)} begun")


def fitting(
    tensors: Mapping[str, Array], states: Mapping[str, StateInfo]
) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the tensors that fit states, and name -> why for the others."""
    fits: dict[str, Array] = {}
    left: dict[str, str] = {}
    for name, array in tensors.items():
        why = "the step has no such state" if name not in states else _misfit(array, states[name])
        if why is None:
            fits[name] = array
        else:
            left[name] = why
    return fits, left


def begun_averages(
    tensors: Mapping[str, Array], states: Mapping[str, StateInfo], averages: Mapping[str, str]
) -> dict[str, Array]:
    """Return averages that begin at the weights that were found, and their count at 0.

    Returns:
        State -> array, of the averages that the checkpoint lacks though it has the variable.
    """
    begun = {
        average: np.asarray(tensors[variable]).astype(states[average].element.numpy())
        for variable, average in averages.items()
        if variable in tensors and average not in tensors
    }
    counts = [s for s in states.values() if s.role == COUNT and begun and s.name not in tensors]
    return begun | {s.name: np.zeros(s.shape, s.element.numpy()) for s in counts}


def _misfit(array: object, state: StateInfo) -> str | None:
    """Return why a value does not fit a state, or None if it does."""
    dtype = state.element.numpy().name
    expected = f"{dtype} {list(state.shape)}"
    if not isinstance(array, np.ndarray | np.generic):
        return f"an object of type {type(array).__name__}, not {expected}"
    if (array.shape, array.dtype.name) == (state.shape, dtype):
        return None
    return f"{array.dtype.name} {list(array.shape)}, not {expected}"


def state_tensors(tensors: Mapping[str, Array], where: object) -> Mapping[str, Array]:
    """Return what is to become the states of a session."""
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

    Raises:
        CheckpointError: The other tensors are not exactly those of the step.
    """
    rest = {k: v for k, v in tensors.items() if k in states or not _NAME.fullmatch(k)}
    missing = [k for k, state in states.items() if state.role in ROLES and k not in rest]
    rest |= {name: np.array(initial[name].numpy()) for name in missing}
    _check_fits(rest, states, where)
    if missing:
        scales = [rest[name].item() for name in missing if states[name].role == ROLES[0]]
        value = f", {scales[0]:g}" if scales else ""
        warn(
            f"{where}: it has no loss scale ({', '.join(missing)}); the loss scale restores with "
            f"the initial one{value}"
        )
    return rest


def _check_fits(tensors: Mapping[str, Array], states: Mapping[str, StateInfo], where: Any) -> None:
    """Refuse tensors that are not exactly the states of a step."""
    missing = [name for name in states if name not in tensors]
    unknown = [name for name in tensors if name not in states]
    misfits = [
        (k, why) for k, s in states.items() if k in tensors and (why := _misfit(tensors[k], s))
    ]
    if not missing and not unknown and not misfits:
        return
    what = "the checkpoint belongs to another model or optimizer"
    expected = "only what the step has"
    if missing:
        close = get_close_matches(missing[0], unknown, n=1)
        hint = f" (it has {close[0]!r})" if close else ""
        expected = f"{_few(missing)}, which it lacks{hint}"
    found = f"{_few(unknown)} that the step does not have" if unknown else None
    if misfits and not missing and not unknown:
        what = f"the checkpoint belongs to another model: {misfits[0][0]!r} differs"
        found, _, expected = misfits[0][1].partition(", not ")
    raise CheckpointError(
        what,
        where=where,
        found=found,
        expected=expected,
        remedy="restore it with the step that it was saved from, or what fits with strict=False",
    )


def _few(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def slots_of(step: Step) -> dict[str, Slot]:
    """Return state name -> slot; of a step in a file nothing is known."""
    states = {} if step.training is None else step.training.states
    slots = {name: states[name].slot for name in step.info.names if name in states}
    return {name: slot for name, slot in slots.items() if slot is not None}


def by_slot(
    tensors: Mapping[str, Array], saved: Mapping[str, Slot], states: Mapping[str, Slot]
) -> dict[str, Array]:
    """Return tensors of a checkpoint under the names that a step has for the same slots.

    What the step has no slot for, though it has a state of this name, gets a name that says which
    slot it is. Two optimizers of one name have slots that cannot be told apart: these keep names.
    """
    if not saved or not states:
        return dict(tensors)
    counts = Counter(saved.values()) | Counter(states.values())
    names = {slot: name for name, slot in states.items() if counts[slot] == 1}
    renamed: dict[str, Array] = {}
    for name, array in tensors.items():
        slot = saved.get(name)
        if slot is None or counts[slot] > 1:
            renamed[name] = array
        elif slot in names:
            renamed[names[slot]] = array
        else:
            renamed[": ".join(slot) if name in states else name] = array
    return renamed


def uncertain(tensors: Mapping[str, Array], step: Step) -> dict[str, str]:
    """Return the tensors of which a number alone says which slot they are, where numbers differ.

    The slots of a variable are states named `w/Adam`, `w/Adam_1`, ... in the order in which they
    were made. A slot that a user adds moves the others' numbers.

    Returns:
        State name -> why it cannot be told.
    """
    here = _numbered(state.name for state in step.info.states if state.role == "slot")
    there = _numbered(tensors)
    return {
        name: f"which slot of {stem} this is cannot be told: the step has others"
        for stem, names in here.items()
        if there.get(stem, names) != names
        for name in names & there[stem]
    }


def _numbered(names: Iterable[str]) -> dict[str, set[str]]:
    """Return names without their numbers -> the names."""
    names_of: dict[str, set[str]] = {}
    for name in names:
        names_of.setdefault(_NUMBER.sub("", name), set()).add(name)
    return names_of
