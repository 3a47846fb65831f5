"""All painting passes: made by `python tools/make_pass_table.py`, not edited by hand."""

from __future__ import annotations

from amp_rewrite.rewriting.paint.paint_pass import PaintPass
from amp_rewrite.rewriting.paint.passes.deny_sequences import deny_sequences
from amp_rewrite.rewriting.paint.passes.drop_islands import drop_islands
from amp_rewrite.rewriting.paint.passes.drop_unsupported import drop_unsupported
from amp_rewrite.rewriting.paint.passes.fill_between import fill_between
from amp_rewrite.rewriting.paint.passes.follow_allow import follow_allow
from amp_rewrite.rewriting.paint.passes.grow_clear import grow_clear
from amp_rewrite.rewriting.paint.passes.join_scales import join_scales
from amp_rewrite.rewriting.paint.passes.keep_batch_norms import keep_batch_norms
from amp_rewrite.rewriting.paint.passes.keep_biases import keep_biases
from amp_rewrite.rewriting.paint.passes.keep_carried import keep_carried
from amp_rewrite.rewriting.paint.passes.keep_coordinates import keep_coordinates
from amp_rewrite.rewriting.paint.passes.keep_cosines import keep_cosines
from amp_rewrite.rewriting.paint.passes.keep_cut import keep_cut
from amp_rewrite.rewriting.paint.passes.keep_demands import keep_demands
from amp_rewrite.rewriting.paint.passes.keep_dequantized import keep_dequantized
from amp_rewrite.rewriting.paint.passes.keep_differences import keep_differences
from amp_rewrite.rewriting.paint.passes.keep_gradients import keep_gradients
from amp_rewrite.rewriting.paint.passes.keep_groups import keep_groups
from amp_rewrite.rewriting.paint.passes.keep_in_range import keep_in_range
from amp_rewrite.rewriting.paint.passes.keep_logarithms import keep_logarithms
from amp_rewrite.rewriting.paint.passes.keep_long_axes import keep_long_axes
from amp_rewrite.rewriting.paint.passes.keep_long_sums import keep_long_sums
from amp_rewrite.rewriting.paint.passes.keep_masks import keep_masks
from amp_rewrite.rewriting.paint.passes.keep_moments import keep_moments
from amp_rewrite.rewriting.paint.passes.keep_offsets import keep_offsets
from amp_rewrite.rewriting.paint.passes.keep_overflows import keep_overflows
from amp_rewrite.rewriting.paint.passes.keep_parts import keep_parts
from amp_rewrite.rewriting.paint.passes.keep_phases import keep_phases
from amp_rewrite.rewriting.paint.passes.keep_quantized import keep_quantized
from amp_rewrite.rewriting.paint.passes.keep_quotients import keep_quotients
from amp_rewrite.rewriting.paint.passes.keep_runnable import keep_runnable
from amp_rewrite.rewriting.paint.passes.keep_states import keep_states
from amp_rewrite.rewriting.paint.passes.keep_steep_gradients import keep_steep_gradients
from amp_rewrite.rewriting.paint.passes.keep_sums import keep_sums
from amp_rewrite.rewriting.paint.passes.keep_uncast import keep_uncast
from amp_rewrite.rewriting.paint.passes.keep_underflows import keep_underflows
from amp_rewrite.rewriting.paint.passes.keep_vanished import keep_vanished
from amp_rewrite.rewriting.paint.passes.match_sequences import match_sequences
from amp_rewrite.rewriting.paint.passes.move_casts import move_casts
from amp_rewrite.rewriting.paint.passes.retarget_casts import retarget_casts
from amp_rewrite.rewriting.paint.passes.retarget_dequantizers import retarget_dequantizers
from amp_rewrite.rewriting.paint.passes.seed_allow import seed_allow
from amp_rewrite.rewriting.paint.passes.spread_deny import spread_deny
from amp_rewrite.rewriting.paint.passes.widen_ends import widen_ends

PASSES: tuple[PaintPass, ...] = (
    deny_sequences,
    drop_islands,
    drop_unsupported,
    fill_between,
    follow_allow,
    grow_clear,
    join_scales,
    keep_batch_norms,
    keep_biases,
    keep_carried,
    keep_coordinates,
    keep_cosines,
    keep_cut,
    keep_demands,
    keep_dequantized,
    keep_differences,
    keep_gradients,
    keep_groups,
    keep_in_range,
    keep_logarithms,
    keep_long_axes,
    keep_long_sums,
    keep_masks,
    keep_moments,
    keep_offsets,
    keep_overflows,
    keep_parts,
    keep_phases,
    keep_quantized,
    keep_quotients,
    keep_runnable,
    keep_states,
    keep_steep_gradients,
    keep_sums,
    keep_uncast,
    keep_underflows,
    keep_vanished,
    match_sequences,
    move_casts,
    retarget_casts,
    retarget_dequantizers,
    seed_allow,
    spread_deny,
    widen_ends,
)
