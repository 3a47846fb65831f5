"""Inputs to begin with, for a model of which no data are at hand: a few batches, to be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from amp_rewrite.graph.io.load import Source
from amp_rewrite.numerics.compare.finite_feeds import finite_feed
from amp_rewrite.numerics.emulate.emulated_feeds import Feeds
from amp_rewrite.numerics.emulate.evaluator import Evaluator
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.numerics.inputs.input_roles import InputRole, roles_of
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs
from amp_rewrite.rewriting.plan.input_ranges import InputRanges


@dataclass(frozen=True, eq=False)
class MadeUpInputs:
    """Batches on which a model runs.

    Attributes:
        batches: Input name -> array, once a batch; inputs with a default are left out.
        roles: What the inputs were taken for, by name.
    """

    batches: tuple[Feeds, ...]
    roles: Mapping[str, InputRole]


def make_inputs(
    model: Source, batches: int = 1, *, seed: int = 0, ranges: InputRanges | None = None
) -> MadeUpInputs:
    """Make up inputs as `verify` does, and see that the model runs on them.

    Args:
        model: A path, an onnx_ir model or a ModelProto; not modified.
        batches: How many; each has random numbers of its own.
        seed: Where random numbers begin.
        ranges: Input name -> the least and the greatest number in it.

    Raises:
        AmpError: The model is not valid, no made-up inputs fit it, or ONNX Runtime is missing.
    """
    typed = TypedModel.own(model)
    plausible = PlausibleInputs.of(typed.model, seed, ranges, types=typed.types)
    roles = roles_of(typed.model, plausible.specs, plausible.limits)
    run = Evaluator(typed, emulate=False).run
    feeds = (finite_feed(replace(plausible, seed=seed + i), run)[1] for i in range(batches))
    return MadeUpInputs(tuple(feeds), roles)
