"""What the rules find in a model in 16 bits, for each 16-bit type that it computes in.

Rules differ by type: float16 overflows, bfloat16 is coarse. A model that computes in both is read
once for each; what is dangerous in either becomes float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from amp_rewrite import targets
from amp_rewrite.dtypes import DType
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.proto.flat_proto import FlatProto
from amp_rewrite.rewriting.api import RewriteResult, rewrite_freely
from amp_rewrite.rewriting.apply.rewritten_model import rewritten_flat
from amp_rewrite.rewriting.apply.written_metadata import for_model
from amp_rewrite.rewriting.dangers import FormDangers, form_dangers
from amp_rewrite.rewriting.paint.given_notes import given_notes
from amp_rewrite.rewriting.plan.options import KEEP, RewriteOptions
from amp_rewrite.rewriting.plan.paint_context import lists_of
from amp_rewrite.rewriting.raise_dangers import Variable, lost_in, low_types
from amp_rewrite.rewriting.widen import Raised, WideForm, wide_form


class JudgedType(NamedTuple):
    """One 16-bit type of a model, and what is left of its painting.

    Attributes:
        form: The model, and the form in which all of that type is float32.
        result: The painting of the form that the rules, or data, leave.
    """

    form: WideForm
    result: RewriteResult

    @property
    def nodes(self) -> int:
        """How many nodes of the model compute in that type."""
        low, graph = self.result.context.given, self.result.context.type_graph
        if low is None:
            return 0
        notes = given_notes(graph.flat)
        return len({notes[n].node for n in np.unique(graph.node[low]).tolist()} - {ABSENT})

    def lost(self, *, wide_ends: bool) -> set[Variable]:
        """Return what of the model is to become float32."""
        context, painting = self.result.context, self.result.painting
        return lost_in(self.form, painting, context, wide_ends=wide_ends)

    def dangers(self, *, wide_ends: bool) -> FormDangers:
        """Return why, with the names that the model has."""
        context, target = self.result.context, self.result.options.chosen_target
        painting = self.result.painting
        return form_dangers(self.form, painting, context, target, wide_ends=wide_ends)


def judged(form: WideForm, options: RewriteOptions) -> RewriteResult:
    """Return what the rules leave of the painting that a model came with."""
    return rewrite_freely(form.model, replace(options, overflow=KEEP))


def other_types(flat: FlatProto, options: RewriteOptions) -> tuple[JudgedType, ...]:
    """Return what the rules find for each 16-bit type of a model but that of the options.

    A type that the target does not compute in, and one of which nothing can become float32, is left
    out; so is every one where there is to be no other type (`only`).
    """
    if options.only is not None:
        return ()
    others = (low for low in low_types(flat) if low.name != options.precision)
    return tuple(_judged_types(flat, others, options))


def float32_form(form: WideForm, others: Sequence[JudgedType]) -> WideForm:
    """Return the form of a model in which what is judged is float32, of whichever type it was."""
    bases = [
        base for one in (form, *(o.form for o in others)) for base in one.context.type_graph.bases
    ]
    whole = wide_form(form.given, bases) if others else None
    return form if whole is None else whole


def unjudged_types(
    flat: FlatProto, options: RewriteOptions, others: Sequence[JudgedType]
) -> Mapping[str, int]:
    """Return each 16-bit type that was left out -> how many results of nodes have it."""
    precisions = {options.precision, *(other.result.options.precision for other in others)}
    return {low.name: n for low, n in low_types(flat).items() if low.name not in precisions}


def _judged_types(
    flat: FlatProto, lows: Iterator[DType], options: RewriteOptions
) -> Iterator[JudgedType]:
    computes = targets.find(options.chosen_target).precisions
    for low in (low for low in lows if low.name in computes):
        form = wide_form(flat, [low], noted=True)
        if form is None:
            continue
        own = replace(options, precision=low.name)
        try:
            lists_of(own)
        except OptionError:  # they are written for the other type
            own = replace(own, lists=None)
        judged_type = JudgedType(form, judged(form, own))
        if judged_type.nodes:
            yield judged_type


def lost_behind(raised: Raised, options: RewriteOptions, *, wide_ends: bool) -> set[Variable]:
    """Return what the rules find in a repaired model that they did not find in the one it was.

    Where one type has become float32, nodes in the other one read other numbers. Nodes are named as
    in the model before; Casts that were added are none.
    """
    graph = raised.context.type_graph
    rewritten = rewritten_flat(raised.flat, graph, raised.plan, raised.removed, {})
    flat = rewritten.flat
    flat.customs = raised.flat.customs
    lows = iter(low_types(flat))
    judged_again = _judged_types(flat, lows, for_model(options, flat))
    again = {name for judged in judged_again for name in judged.lost(wide_ends=wide_ends)}
    return {(rewritten.origins[n], v) for n, v in again if rewritten.origins[n] != ABSENT}
