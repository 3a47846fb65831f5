"""Slots in checkpoints: matched by what their optimizers call them, not by numbers in names.

The slots of a variable are states named `w/Adam`, `w/Adam_1`, ... in the order in which they were
made. A slot that a user adds, or that another rounding needs, moves the numbers of the others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from amp_rewrite.training.step.step import Step

Array = np.ndarray[Any, Any]
Slot = tuple[str, str]
"""Whose slot a state is, `<variable>/<optimizer>`, and what that calls it."""

_NUMBER = re.compile(r"_\d+$")


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
