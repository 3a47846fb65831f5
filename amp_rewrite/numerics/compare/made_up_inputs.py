"""Inputs that are made up for a model, and which feeds count: those with a finite original.

Evidence: data of NaN (tests/numerics/compare/test_trusted_verdicts.py): without, NaN equals NaN and
the model passes; with, such feeds do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from amp_rewrite.errors import OutOfTimeError, RunError
from amp_rewrite.graph.io.load import Source
from amp_rewrite.numerics.compare.distance import is_float
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.batches import Array, Feeds
from amp_rewrite.numerics.inputs.input_roles import InputRole, roles_of
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs
from amp_rewrite.rewriting.plan.input_ranges import InputRanges


class MadeUpInputs(NamedTuple):
    """Batches on which a model runs, and the role that each input seems to have."""

    batches: tuple[Feeds, ...]
    roles: Mapping[str, InputRole]


def make_inputs(
    model: Source, batches: int = 1, *, seed: int = 0, ranges: InputRanges | None = None
) -> MadeUpInputs:
    """Make up inputs as `verify` does, and see that the model runs on them.

    Each batch has random numbers of its own; `ranges` are input name -> the least and the greatest
    number in it.

    Raises:
        AmpError: The model is not valid, no made-up inputs fit it, or ONNX Runtime is missing.
    """
    typed = TypedModel.own(model)
    plausible = PlausibleInputs.of(typed.model, seed, ranges, types=typed.types)
    roles = roles_of(typed.model, plausible.specs, plausible.limits)
    run = Evaluator(typed, emulate=False).run
    feeds = (finite_feed(replace(plausible, seed=seed + i), run)[1] for i in range(batches))
    return MadeUpInputs(tuple(feeds), roles)


def finite_feed(
    plausible: PlausibleInputs, run: Callable[[Feeds], Mapping[str, Any]]
) -> tuple[int, Feeds]:
    """Return the attempt at sizes that runs, and its feed: one on which outputs are finite.

    A square root of negative numbers is NaN, a mean of none, or a band between crossed limits.

    Raises:
        DataError: The model runs on no made-up inputs.
    """
    outputs: dict[str, Any] = {}
    attempt, feeds = plausible.runnable(lambda example: outputs.update(run(example)))
    if lost_in(outputs, {}) is None:
        return attempt, feeds
    return attempt, next((f for f in plausible.alternatives(feeds) if _is_finite(f, run)), feeds)


def _is_finite(feeds: Feeds, run: Callable[[Feeds], Mapping[str, Any]]) -> bool:
    try:
        return lost_in(run(feeds), {}) is None
    except OutOfTimeError:
        raise
    except RunError:
        return False


def lost_in(outputs: Mapping[str, Any], apart: Mapping[str, Array]) -> str | None:
    """Return what of the original is not finite, in a few words; None if all of it is.

    Minus infinity is what masks are filled with, and counts as a number. Rows that are `apart` are
    read by nobody.
    """
    apart_of = {name: array[~apart[name]] for name, array in _floats(outputs) if name in apart}
    found = _not_finite({**outputs, **apart_of})
    return found and f"the original gives {found[1]} in output {found[0]}"


def nonfinite_input(feeds: Feeds) -> str | None:
    """Return the first input that holds NaN or infinity, and how many; None if none does."""
    found = _not_finite(feeds)
    return found and f"input {found[0]} holds {found[1]} in {found[2]} elements"


def _not_finite(values: Mapping[str, Any]) -> tuple[str, str, int] | None:
    """Return the first value that holds NaN or infinity, which of these, and how many."""
    for name, array in _floats(values):
        for kind, mask in (("NaN", np.isnan(array)), ("infinity", np.isposinf(array))):
            if mask.any():
                return name, kind, int(np.count_nonzero(mask))
    return None


def _floats(values: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    """Yield names and floats: a value itself, or the items of a sequence."""
    for name, value in values.items():
        for item in value if isinstance(value, list) else [value]:
            array = np.asarray(item)
            if item is not None and is_float(array):
                yield name, array.astype(np.float32) if array.dtype.kind != "f" else array
