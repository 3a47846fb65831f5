"""From a checkpoint or a state dict to the states of a step: all of it, or what fits by name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import onnx_ir as ir

from amp_rewrite.base.printable import few
from amp_rewrite.errors import CheckpointError, warn
from amp_rewrite.rewriting.report.records import Shown
from amp_rewrite.training.loss_scaling.loss_scale import PREFIX, ROLES, LossScaleState
from amp_rewrite.training.optimizers.train_op import COUNT
from amp_rewrite.training.step.step_info import StateInfo

Array = np.ndarray[Any, Any]

_NUMBER = re.compile(r"_\d+$")
_SCALE_NAME = re.compile(rf"{PREFIX}(?:{'|'.join(LossScaleState._fields)})(?:_\d+)?")
"""The names of the states of a loss scale; numbered if a model has several."""


@dataclass(frozen=True, repr=False)
class Restored(Shown):
    """The names that a session took from a checkpoint or a state dict, and left.

    Attributes:
        taken: The names of what was taken.
        left: Name -> why it was not taken.
        kept: The states that it lacks, or has in another shape; they stay as they were.
        begun: The averages of taken weights that it lacks; they begin anew, at those weights.
    """

    taken: tuple[str, ...]
    left: Mapping[str, str]
    kept: tuple[str, ...]
    begun: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield how many tensors were taken, and why others were not."""
        numbers = f"{len(self.taken)} tensors taken, {len(self.left)} left"
        yield f"{numbers}; {len(self.kept)} states kept, {len(self.begun)} begun"
        yield from (f"{name}: {why}" for name, why in self.left.items())


def _fitting(
    tensors: Mapping[str, Array], states: Mapping[str, StateInfo]
) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the tensors that fit states, and name -> why for the others.

    The slots of a variable are states named `w/Adam`, `w/Adam_1`, ... in the order in which they
    were made. A step with other slots gives them other numbers, so that none of them fits.
    """
    fits: dict[str, Array] = {}
    left: dict[str, str] = {}
    here = _numbered(name for name, state in states.items() if state.role == "slot")
    there = _numbered(tensors)
    for name, array in tensors.items():
        stem = _NUMBER.sub("", name)
        if name not in states:
            left[name] = "the step has no such state"
        elif here.get(stem, there[stem]) != there[stem]:
            left[name] = f"which slot of {stem} this is cannot be told: the step has others"
        elif (why := _misfit(array, states[name])) is not None:
            left[name] = why
        else:
            fits[name] = array
    return fits, left


def _numbered(names: Iterable[str]) -> dict[str, set[str]]:
    """Return names without their numbers -> the names."""
    names_of: dict[str, set[str]] = {}
    for name in names:
        names_of.setdefault(_NUMBER.sub("", name), set()).add(name)
    return names_of


def begun_averages(
    tensors: Mapping[str, Array], states: Mapping[str, StateInfo], averages: Mapping[str, str]
) -> dict[str, Array]:
    """Return the averages whose variables alone were found, at these, and their count at 0."""
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


def taken_from(
    tensors: Mapping[str, Array],
    states: Mapping[str, StateInfo],
    initial: Mapping[str, ir.TensorProtocol],
    where: str | os.PathLike[str],
    *,
    strict: bool,
) -> tuple[dict[str, Array], dict[str, str]]:
    """Return what becomes the states of a session, and name -> why for the rest; all if strict."""
    if not isinstance(tensors, Mapping) or not all(isinstance(k, str) for k in tensors):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise CheckpointError(
            "the states must be a mapping from their names to arrays",
            where=where,
            found=f"an object of type {type(tensors).__name__}",
            remedy="pass what state_dict returned",
        )
    return (_fitted(tensors, states, initial, where), {}) if strict else _fitting(tensors, states)


def _fitted(
    tensors: Mapping[str, Array],
    states: Mapping[str, StateInfo],
    initial: Mapping[str, ir.TensorProtocol],
    where: str | os.PathLike[str],
) -> dict[str, Array]:
    """Return one tensor for each state of a step; it is an error if others are there or missing.

    A loss scale that the step does not have is left out. One that is missing begins at its
    initial values, with a warning.
    """
    rest = {k: v for k, v in tensors.items() if k in states or not _SCALE_NAME.fullmatch(k)}
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
    missing = [name for name in states if name not in tensors]
    unknown = [name for name in tensors if name not in states]
    what = "the checkpoint belongs to another model or optimizer"
    found, expected = None, "only what the step has"
    if missing:
        close = get_close_matches(missing[0], unknown, n=1)
        expected = f"{_named(missing)}, which it lacks" + (
            f" (it has {close[0]!r})" if close else ""
        )
    if unknown:
        found = f"{_named(unknown)} that the step does not have"
    if not missing and not unknown:
        whys = ((name, _misfit(tensors[name], state)) for name, state in states.items())
        name, why = next(((name, why) for name, why in whys if why is not None), ("", None))
        if why is None:
            return
        what = f"the checkpoint belongs to another model: {name!r} differs"
        found, _, expected = why.partition(", not ")
    raise CheckpointError(
        what,
        where=where,
        found=found,
        expected=expected,
        remedy="restore it with the step that it was saved from, or what fits with strict=False",
    )


def _named(names: list[str]) -> str:
    return few([*map(repr, sorted(names))])
