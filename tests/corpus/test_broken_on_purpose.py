"""Converted models that were broken on purpose: `verify` is to notice."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from breakages import KINDS, Breakage, drawn, largest_move

import amp_rewrite as amp
from amp_rewrite.errors import RunError
from amp_rewrite.numerics.emulate import Evaluator
from amp_rewrite.numerics.inputs.plausible import PlausibleInputs

MODELS = (
    *("magika", "minilm_l3", "silero_v4", "silero_v6", "silero_v6_16k_op15", "oww_embedding"),
    *("oww_hey_jarvis", "oww_hey_mycroft", "ppocr_cls", "basic_pitch"),
)
EACH = 20
"""How many breakages of each model: 200 of all."""

TRIES = 120
CAUGHT = 0.95
"""The share that is to be noticed, without data."""


def breakages_of(original: onnx.ModelProto, converted: onnx.ModelProto) -> Any:
    """Yield breakages that can be seen, what they move in float32, and the broken model.

    An output has to move by more than the conversion itself moves it, on made-up inputs.
    """
    run = Evaluator(original).run
    plausible = PlausibleInputs.of(amp.load(original))
    _, feeds = plausible.runnable(run)
    before = run(feeds)
    rounding = largest_move(before, Evaluator(converted).run(feeds))
    for breakage in islice(drawn(original, seed=0), TRIES):
        wide, broken = breakage.applied(original), breakage.applied(converted)
        if wide is None or broken is None:
            continue
        try:
            moved = largest_move(before, Evaluator(wide).run(feeds))
        except RunError:
            continue  # the runtime itself refuses it
        if moved > rounding:
            yield breakage, moved, rounding, broken


@pytest.mark.slow
def test_verify_notices_what_was_broken(corpus: Any) -> None:
    missed: list[str] = []
    tried: list[Breakage] = []
    for name in MODELS:
        original = onnx.load(corpus.path(name))
        converted = ir.to_proto(amp.rewrite(original).model)
        for breakage, moved, rounding, broken in islice(breakages_of(original, converted), EACH):
            tried.append(breakage)
            if amp.verify(original, broken, stress=False).ok and amp.verify(original, broken).ok:
                missed.append(f"{name}: {breakage}: {moved:.2g}, rounding {rounding:.2g}")
    assert len(tried) >= 0.9 * EACH * len(MODELS)
    assert {breakage.kind for breakage in tried} == set(KINDS)
    listed = "\n  ".join((f"{len(missed)} of {len(tried)} are missed:", *missed))
    sys.stdout.write(listed + "\n")  # pytest shows it where it fails, and with -s
    assert 1 - len(missed) / len(tried) >= CAUGHT, listed
