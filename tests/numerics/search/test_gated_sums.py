"""Gates of nodes whose sums a target keeps in the low type: WebGPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from accumulating_graphs import GRAPHS, HEADER, SUMS, feeds_of

import amp_rewrite as amp
from amp_rewrite.errors import OptionError
from amp_rewrite.numerics.repaint.repaint import Repainter
from amp_rewrite.numerics.search.gates import GatedModel
from amp_rewrite.numerics.search.localise import localise
from amp_rewrite.numerics.search.tolerance import Tolerance
from amp_rewrite.numerics.search.tune import tune
from amp_rewrite.rewriting.plan.options import RewriteOptions

ONES = f"""{HEADER} g (float[1,4096] x) => (float[1,1] y)
<float[4096,1] w = {{{",".join(["1"] * 4096)}}}> {{ [product] y = MatMul(x, w) }}"""

BRANCHES = f"""{HEADER} g (float[1,4096] x, bool flag) => (float[1,1] y)
<float[4096,1] w = {{{",".join(["1"] * 4096)}}}> {{
  [choice] y = If(flag) <
    then_branch = t () => (float[1,1] a) {{ [product] a = MatMul(x, w) }},
    else_branch = e () => (float[1,1] b) {{ [other] b = ReduceSum<keepdims: int = 1>(x) }}
  > }}"""

DATA = {"x": np.ones((1, 4096), np.float32)}


def float32(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEADER} {text.replace('float16', 'float')}")


def options(**changes: Any) -> RewriteOptions:
    return RewriteOptions(target="webgpu", allow_nodes=["*"], keep_io_types=False, **changes)


@pytest.mark.share(3)
@pytest.mark.parametrize("name", GRAPHS)
def test_an_open_gate_adds_up_as_the_target_does(name: str) -> None:
    model = float32(GRAPHS[name])
    feeds = {key: array.astype(np.float32) for key, array in feeds_of(model).items()}
    painter = Repainter.of(model, options())
    low = painter.low_slots(painter.rewrite())
    gated = GatedModel.of(painter, low)
    rewritten = amp.rewrite(model, options()).model
    emulated = amp.evaluate(rewritten, feeds_of(model), accumulate_low=SUMS)["y"]
    np.testing.assert_array_equal(gated.run(feeds, low)["y"], emulated.astype(np.float32))
    np.testing.assert_array_equal(gated.run(feeds, ())["y"], amp.evaluate(model, feeds)["y"])
    assert not np.array_equal(amp.evaluate(rewritten, feeds_of(model))["y"], emulated)


@pytest.mark.parametrize(("target", "distance"), [("webgpu", 0.5), ("cuda", 0.0)])
def test_localise_finds_a_sum_that_stops(target: Any, distance: float) -> None:
    model = onnx.parser.parse_model(ONES)
    found = localise(model, None, DATA, target=target, allow_nodes=["product"])
    assert found.outputs == {"y": distance}
    assert (found.first.node if found.first else None) == ("product" if distance else None)


def test_localise_takes_the_target_of_a_model_that_was_rewritten() -> None:
    model = onnx.parser.parse_model(ONES)
    rewritten = amp.rewrite(model, target="webgpu", allow_nodes=["product"]).model
    assert localise(model, rewritten, DATA).outputs == {"y": 0.5}
    assert localise(model, rewritten, DATA, target="cuda").outputs == {"y": 0.0}
    with pytest.raises(OptionError, match="only the target may be named"):
        localise(model, rewritten, DATA, target="webgpu", level="TREAT_INFER_AS_DENY")


OLD = """<ir_version: 7, opset_import: ["" : 9]> g (float[1,4096] x) => (float[1,1] y, float[1,2] z)
<float[4096,1] w = {ONES}, float[1] two = {2}, float[1,2] row = {1, 2}> {
  [product] p = MatMul(x, w)
  [scaled] s = Upsample<mode = "nearest">(p, scales)
  [joined] c = Concat<axis = 1>(p, s)
  [soft] z = Softmax<axis = 1>(c)
  [sum] y = ReduceSum<axes = [1], keepdims = 1>(x)
}""".replace("ONES", ",".join(["1"] * 4096)).replace(
    "float[1] two = {2}", "float[2] scales = {1, 1}"
)


def test_sums_of_an_old_model_stop_as_well() -> None:
    model = onnx.parser.parse_model(OLD)
    painter = Repainter.of(model, options())
    low = painter.low_slots(painter.rewrite())
    assert {painter.nodes[slot.node].name for slot in low} >= {"product", "soft"}
    gated = GatedModel.of(painter, low, expose_all=True)
    assert {node for node, _ in gated.values} == set(range(len(painter.nodes)))
    product = gated.values[next(i for i, n in enumerate(painter.nodes) if n.name == "product"), 0]
    assert gated.run(DATA, (), [product])[product] == 4096
    assert gated.run(DATA, low, [product])[product] == 2048
    found = localise(model, None, DATA, options())
    assert found.first is not None
    assert found.first.node == "product"


@pytest.mark.parametrize("flag", [True, False])
def test_a_sum_in_a_branch_stops_as_well(flag: bool) -> None:
    model = onnx.parser.parse_model(BRANCHES)
    painter = Repainter.of(model, options())
    low = painter.low_slots(painter.rewrite())
    feeds = {**DATA, "flag": np.array(flag)}
    gated = GatedModel.of(painter, low)
    assert gated.run(feeds, ())["y"] == 4096
    assert gated.run(feeds, low)["y"] == (2048 if flag else 4096), "the other has 64 running sums"


@pytest.mark.parametrize(("target", "keep"), [("webgpu", ("product",)), ("cuda", ())])
def test_tune_keeps_what_the_sums_of_its_target_spoil(target: Any, keep: tuple[str, ...]) -> None:
    positive = np.random.default_rng(0).uniform(0.5, 1.5, (17, 1024)).astype(np.float32)
    weights = ",".join(map(str, positive[1:].ravel()))
    model = onnx.parser.parse_model(
        f"{HEADER} g (float[1,1024] x) => (float[1,16] y) <float[1024,16] w = {{{weights}}}>"
        "{ [product] y = MatMul(x, w) }"
    )
    found = tune(model, {"x": positive[:1]}, Tolerance("max-relative", 1e-3), target=target)
    assert found.keep == keep
