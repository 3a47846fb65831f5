"""Slots in checkpoints that cannot be told apart.

The slots of a variable are states named `w/Adam`, `w/Adam_1`, ... in the order in which they were
made. A slot that a user adds, or that another rounding needs, moves the numbers of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from amp_rewrite.training.step.step import Step

Array = np.ndarray[Any, Any]
_NUMBER = re.compile(r"_\d+$")


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
