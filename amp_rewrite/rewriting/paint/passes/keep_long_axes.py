"""Operators whose kernel computes places of its results stay float32 where an axis is too long.

In float16 whole numbers are exact up to 2,048: behind that the kernel of WebGPU's ConvTranspose
reads its input at the wrong places. Rows of the tables of kernels say which operators do so. An
axis whose length no shape tells may be as long.

Evidence: more than 2,048 results along an axis on WebGPU: errors of 54 to 88 %, as reported and not
measured here (https://github.com/microsoft/onnxruntime/issues/28976); float32 with the pass.
"""

from __future__ import annotations

from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Need, Reason, Stage, keep


@keep("keep-long-axes", Reason.LONG_AXIS, Stage.GIVEN, 75, needs=Need.NOTHING)
def keep_long_axes(m: Match, ask: Ask) -> Kept:
    """Mark what has more results along an axis than the low type counts, or an unknown number."""
    indexing = [called[:2] in ask.context.indexes_low for called in m.flat.operators]
    longest = round(2 / m.low.epsilon)  # whole numbers up to here are exact
    for node in [n for n, number in enumerate(m.flat.operator) if indexing[number]]:
        axes = (m.flat.shape(m.made(node)) or [None])[2:] or [None]
        length = None if None in axes else max(n for n in axes if n is not None)
        if length is None or length > longest:
            counted = "an unknown number of" if length is None else f"{length:,}"
            detail = f"{counted} results along an axis; {m.low.name} counts up to {longest:,}"
            yield Keep(detail, [node])
