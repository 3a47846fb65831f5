"""All painting passes: made by `python tools/make_pass_table.py`, not edited by hand."""

from __future__ import annotations

from amp_rewrite.rewriting.paint.paint_pass import PaintPass
from amp_rewrite.rewriting.paint.passes.deny_sequences import DenySequences
from amp_rewrite.rewriting.paint.passes.drop_islands import DropIslands
from amp_rewrite.rewriting.paint.passes.drop_unsupported import DropUnsupported
from amp_rewrite.rewriting.paint.passes.fill_between import FillBetween
from amp_rewrite.rewriting.paint.passes.follow_allow import FollowAllow
from amp_rewrite.rewriting.paint.passes.grow_clear import GrowClear
from amp_rewrite.rewriting.paint.passes.join_scales import JoinScales
from amp_rewrite.rewriting.paint.passes.keep_batch_norms import keep_batch_norms
from amp_rewrite.rewriting.paint.passes.keep_cut import keep_cut
from amp_rewrite.rewriting.paint.passes.keep_demands import keep_demands
from amp_rewrite.rewriting.paint.passes.keep_dequantized import keep_dequantized
from amp_rewrite.rewriting.paint.passes.keep_differences import keep_differences
from amp_rewrite.rewriting.paint.passes.keep_gradients import keep_gradients
from amp_rewrite.rewriting.paint.passes.keep_groups import KeepGroups
from amp_rewrite.rewriting.paint.passes.keep_in_range import keep_in_range
from amp_rewrite.rewriting.paint.passes.keep_logarithms import keep_logarithms
from amp_rewrite.rewriting.paint.passes.keep_long_sums import keep_long_sums
from amp_rewrite.rewriting.paint.passes.keep_masks import keep_masks
from amp_rewrite.rewriting.paint.passes.keep_overflows import keep_overflows
from amp_rewrite.rewriting.paint.passes.keep_parts import keep_parts
from amp_rewrite.rewriting.paint.passes.keep_phases import keep_phases
from amp_rewrite.rewriting.paint.passes.keep_quantized import keep_quantized
from amp_rewrite.rewriting.paint.passes.keep_quotients import keep_quotients
from amp_rewrite.rewriting.paint.passes.keep_runnable import keep_runnable
from amp_rewrite.rewriting.paint.passes.keep_states import keep_states
from amp_rewrite.rewriting.paint.passes.keep_sums import keep_sums
from amp_rewrite.rewriting.paint.passes.keep_uncast import keep_uncast
from amp_rewrite.rewriting.paint.passes.keep_underflows import keep_underflows
from amp_rewrite.rewriting.paint.passes.keep_vanished import keep_vanished
from amp_rewrite.rewriting.paint.passes.match_sequences import MatchSequences
from amp_rewrite.rewriting.paint.passes.move_casts import MoveCasts
from amp_rewrite.rewriting.paint.passes.retarget_casts import RetargetCasts
from amp_rewrite.rewriting.paint.passes.retarget_dequantizers import RetargetDequantizers
from amp_rewrite.rewriting.paint.passes.seed_allow import SeedAllow
from amp_rewrite.rewriting.paint.passes.spread_deny import SpreadDeny

PASSES: tuple[PaintPass, ...] = (
    DenySequences(),
    DropIslands(),
    DropUnsupported(),
    FillBetween(),
    FollowAllow(),
    GrowClear(),
    JoinScales(),
    keep_batch_norms,
    keep_cut,
    keep_demands,
    keep_dequantized,
    keep_differences,
    keep_gradients,
    KeepGroups(),
    keep_in_range,
    keep_logarithms,
    keep_long_sums,
    keep_masks,
    keep_overflows,
    keep_parts,
    keep_phases,
    keep_quantized,
    keep_quotients,
    keep_runnable,
    keep_states,
    keep_sums,
    keep_uncast,
    keep_underflows,
    keep_vanished,
    MatchSequences(),
    MoveCasts(),
    RetargetCasts(),
    RetargetDequantizers(),
    SeedAllow(),
    SpreadDeny(),
)
