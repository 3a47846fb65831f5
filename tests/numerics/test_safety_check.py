"""`check`: what is dangerous in a model in 16 bits."""

from __future__ import annotations

import low_models
import numpy as np
import pytest
from group_models import FORMS, model_around
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.targets import CPU, TargetName


@pytest.mark.share(5)
@pytest.mark.parametrize("name", low_models.WRONG)
def test_models_that_are_wrong_are_found_by_a_run_and_by_the_rules(name: str) -> None:
    report = amp.check(low_models.MODELS[name](), [low_models.feeds(name)], target="webgpu")
    assert not report.ok
    assert report.verdict.failures
    assert report.dangers
    assert report.verdict.status == "failed"


def test_a_rewritten_model_of_this_package_is_safe() -> None:
    for name in ("whisper", "t5", "twice_masked"):
        wide = amp.widen(low_models.MODELS[name](), keep_io_types=False).model
        for target in ("cuda", "webgpu"):
            made = amp.rewrite(wide, target=target)
            assert made.changed
            assert amp.check(made.model, target=target, run=False).dangers == ()


@pytest.mark.share(7, each="name")
@pytest.mark.parametrize("target", ["cuda", "webgpu"])
@pytest.mark.parametrize("name", FORMS)
def test_a_group_is_safe_where_a_rewrite_makes_it_low(name: str, target: TargetName) -> None:
    made = amp.rewrite(model_around(FORMS[name]), target=target)
    assert made.changed
    assert amp.check(made.model, target=target, run=False).dangers == ()


def test_of_a_float32_model_it_is_said_what_a_conversion_keeps() -> None:
    report = amp.check(
        parse("g (float[N,4] x, float[4,4] w) => (float[N,4] y) { h = MatMul(x, w) y = Exp(h) }")
    )
    assert report.ok
    assert report.computes == "float32"
    assert "Exp" in {danger.op for danger in report.dangers}


TWO_TYPES = (
    "g (float16[2] x) => (float16[2] y) { a = Relu(x) b = Cast<to = 16>(a) e = Exp(b)"
    " c = Cast<to = 10>(e) y = Add(a, c) }"
)


def test_both_of_two_types_of_16_bits_are_judged() -> None:
    report = amp.check(parse(TWO_TYPES), run=False)
    assert (report.precision, report.nodes) == ("float16 and bfloat16", 4)
    assert {danger.op for danger in report.dangers} == {"Exp", "Add"}


def test_what_the_rarer_of_two_types_loses_fails() -> None:
    model = parse(
        "g (float16[N,8] x, float16[8] o) => (float16[N,8] y) { a = Add(x, o) b = Relu(a)"
        " c = Cast<to = 16>(b) p = Cast<to = 16>(o) d = Sub(c, p) y = Cast<to = 10>(d) }"
    )
    x = np.random.default_rng(0).random((16, 8)).astype(np.float16)
    feed = {"x": x, "o": np.full(8, 16, np.float16)}
    assert amp.check(model, feed).verdict.status == "failed"
    made = amp.repair(model, feed)
    assert (made.ok, made.changed, dict(made.widened)) == (True, True, {"bfloat16": 3})
    assert "3 values in bfloat16 became float32; float16 stays" in made.to_text()
    assert not amp.repair(made.model, feed).changed


def test_a_model_in_16_bits_is_run_on_a_provider() -> None:
    low = low_models.whisper_encoder(outlier=1.0)
    report = amp.check(low, [low_models.feeds("whisper")], providers=[CPU])
    assert report.run is not None
    assert report.run.device is not None
    assert report.run.device.lines[0].startswith(f"run on {CPU}: worst error ")
    with pytest.raises(OptionError, match="no such execution provider; found 'Nope'"):
        amp.check(low, providers=["Nope"])


def test_a_model_with_operators_that_are_not_registered_is_judged_by_the_rules() -> None:
    made = parse(
        '<ir_version: 9, opset_import: ["" : 18, "plug" : 1]> g (float16[2,4] x, float16[4,4] w)'
        " => (float16[2,4] y) { m = MatMul(x, w) a = plug.Attn(m) y = Relu(a) }"
    )
    report = amp.check(made)
    assert not report.ok
    assert report.run is None
    assert report.verdict.status == "not compared"
    assert str(report.verdict).startswith(
        "Not compared: the rules found nothing in float16 for cuda; "
    )
    assert "plug:Attn" in str(report.verdict)
    assert amp.check(made, run=False).ok
