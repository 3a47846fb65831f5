"""The doctor trains until something is wrong, and says which step it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sick_steps import BATCH, LARGE, joined, scaled, step

import amp_rewrite as amp
from amp_rewrite.errors import DataError, DivergenceError, LossScaleError, OptionError

pytestmark = pytest.mark.filterwarnings("ignore::amp_rewrite.errors.AmpWarning")

HOW: dict[str, Any] = {"batch": 8, "shuffle": False}
LOW = {"precision": "float16", "emulate": True}


def test_the_first_batch_that_is_not_well_is_named() -> None:
    found = amp.doctor(step(), joined(BATCH, BATCH, LARGE, BATCH), **HOW)
    assert (found.step, found.epoch, found.batch) == (3, 1, 3)
    assert found.loss == np.inf
    assert found.first is not None
    assert found.first.node == "act"
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["loss"] == "inf"


@pytest.mark.parametrize("scale", [2.0**62, amp.UncheckedLossScale(2.0**62)], ids=["fixed", "un"])
def test_a_fixed_scale_that_overflows_is_named_in_the_step_in_which_it_does(scale: Any) -> None:
    made = step(optimizer=scaled(scale))
    data = joined(*[BATCH] * 4)
    found = amp.doctor(made, data, skips=1, session={"precision": "float16"}, **HOW)
    assert (found.step, found.loss_scale) == (1, 2.0**62)
    assert found.first is not None
    assert (found.first.part, found.first.layer) == ("backward", "first")
    assert "at loss scale 4.61169e+18" in found.to_text()


def test_an_update_that_nothing_checks_is_looked_at_before_it_is_applied() -> None:
    nodes = """
        [root] r = Sqrt (e)
        [none] n = Mul (r, nil)
        p = Constant <value = float {0.4}> ()
        [square] s = Pow (n, p)"""
    found = amp.doctor(step(nodes.replace("nil", "t")), joined(BATCH, BATCH), **HOW)
    assert (found.step, found.loss) == (1, 0.0)
    assert found.first is not None
    assert found.first.layer == "square"


def test_a_fixed_scale_that_skips_for_ever_ends_training_and_is_blamed() -> None:
    made = step(optimizer=scaled(2.0**62))
    with pytest.raises(LossScaleError, match="at the fixed loss scale") as caught:
        amp.train(made, joined(*[BATCH] * 30), epochs=1, session=LOW, **HOW)
    assert "use a smaller loss scale or a dynamic one" in str(caught.value)


def test_an_unchecked_scale_is_advised_to_be_checked() -> None:
    made = step(optimizer=scaled(amp.UncheckedLossScale(2.0**62)))
    with pytest.raises(DivergenceError, match="use a loss scale that is checked"):
        amp.train(made, joined(*[BATCH] * 4), epochs=1, session=LOW, **HOW)


def test_a_step_that_is_well_is_looked_at_after_so_many() -> None:
    found = amp.doctor(step(), joined(BATCH, BATCH, LARGE), steps=2, **HOW)
    assert (found.step, found.finite, found.skipped) == (2, True, None)
    assert amp.doctor(step(), BATCH, steps=9, **HOW).step == 1


def test_skipped_updates_are_an_illness_when_they_are_too_many() -> None:
    data = joined(*[BATCH] * 6)
    made = step(optimizer=scaled(amp.DynamicLossScale(initial_loss_scale=2.0**62)))
    found = amp.doctor(made, data, skips=4, session={"precision": "float16"}, **HOW)
    assert (found.step, found.loss_scale) == (4, 2.0**59)
    assert found.skipped == "4 updates in a row were skipped"
    assert found.first is not None
    assert found.first.part == "backward"


def test_of_an_update_of_several_batches_the_one_that_spoils_it_is_named() -> None:
    made = step(optimizer=scaled(), accumulate=3)
    data = joined(BATCH, BATCH, BATCH, BATCH, LARGE, BATCH)
    with amp.TrainingSession(made) as session:
        found = amp.doctor(session, {**data, "t": data["t"]}, skips=1, **HOW)
    assert (found.step, found.batch) == (5, 5)
    assert found.first is not None
    assert found.first.node == "act"


def test_a_checkpoint_is_gone_on_from(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    data = joined(BATCH, BATCH, LARGE)
    with amp.Trainer(step()) as trainer:
        trainer.train(joined(BATCH, BATCH), checkpoint=path, **HOW)
    found = amp.doctor(step(), data, checkpoint=path, **HOW)
    assert (found.step, found.epoch, found.batch) == (5, 2, 3)


def test_the_error_of_training_names_value_and_batch() -> None:
    with pytest.raises(DivergenceError) as caught:
        amp.train(step(), joined(BATCH, LARGE), epochs=2, **HOW)
    text = str(caught.value)
    assert "step 2, batch 2 of epoch 1: the loss is not finite" in text
    assert "elements of 'e', which Exp 'act' computes (forward)" in text


@pytest.mark.parametrize("limit", [None, 0])
def test_training_ends_at_a_scale_that_has_collapsed_unless_it_may_not(limit: int | None) -> None:
    loss_scale = amp.DynamicLossScale(1.0, max_consecutive_skips=limit)
    made = step(optimizer=scaled(loss_scale))
    if limit == 0:
        amp.train(made, LARGE, epochs=30, **HOW)
        return
    with pytest.raises(LossScaleError, match=r"20 steps in a row .* 'act' computes") as caught:
        amp.train(made, LARGE, epochs=30, **HOW)
    assert str(caught.value).startswith("step 20, batch 1 of epoch 20: loss scale: ")


def test_impossible_arguments_are_refused() -> None:
    for name in ("steps", "skips", "batch"):
        impossible: dict[str, Any] = {name: 0}
        with pytest.raises(OptionError, match=name):
            amp.doctor(step(), BATCH, **impossible)
    with pytest.raises(DataError):
        amp.doctor(step(), iter([]))
