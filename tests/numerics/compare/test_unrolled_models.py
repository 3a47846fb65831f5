"""Selections inside If, Loop and Scan: every turn of the rewritten model is told the original's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from amp_rewrite.numerics.compare import unrolled_models
from amp_rewrite.numerics.compare.verify import verify
from amp_rewrite.numerics.compare.verify_report import VerifyReport

RNG = np.random.default_rng
PICTURES, BOXES = 4, 400

ENDS = """(float[4,400,32] x, float[4,400,4] corners, bool on, int64 n) => (float y)"""
WEIGHTS = """int64[1] last = {2}, int64[1] first = {1}, int64[1] k = {100}, int64[1] most = {50},
  float half = {0.5}, float limit = {-1}, int64 two = {2}, int64[1] front = {0}, float zero = {0},
  int64[1] three = {3}, bool yes = {1}, int64[4] pads = {0,0,400,0},
  int64[1] begin = {0}, int64[1] end = {200}"""

SCORES = """h = Cast<to=LOW>(p) lw = Cast<to=LOW>(weight) m = MatMul(h, lw) f = Cast<to=1>(m)
  l = Mul(f, scale) d = Mul(c, by)"""
"""The scores l (400, 1) and boxes d (400, 4) of a picture p (400, 32)."""

TOP = "s = Squeeze(l, first) v, i = TopK(s, k) g = Gather(d, i)"
NMS = """z = Transpose(l) zz = Unsqueeze(z, front) dd = Unsqueeze(d, front)
  found = NonMaxSuppression(dd, zz, most, half, limit) rows = Gather<axis=1>(found, two)
  g = Gather(d, rows)"""
ABOVE = """b = Greater(l, zero) nz = NonZero(b) rows = Gather<axis=0>(nz, zero_at)
  all = Gather(d, rows) padded = Pad(all, pads) g = Slice(padded, begin, end)"""
BEST = """q = Reshape(l, groups) a = ArgMax<axis=1, keepdims=0>(q)
  r = Reshape(d, grouped) aa = Unsqueeze(a, first) g = GatherND<batch_dims=1>(r, aa)"""


def loop(inner: str, body: str = "go = Identity(again)") -> str:
    return f"""y = Loop(n, yes) <body = turn (int64 t, bool again) => (bool go, float[N,4] g) {{
      p = Gather(x, t) c = Gather(corners, t) {SCORES} {inner} {body} }}>"""


def branch(inner: str) -> str:
    return f"""x0 = Gather(x, two) c0 = Gather(corners, two)
      y = If(on) <then_branch = a () => (float[N,4] g) {{
          p = Identity(x0) c = Identity(c0) {SCORES} {inner} }},
        else_branch = b () => (float[N,4] o) {{ o = Identity(c0) }}>"""


def scan(inner: str) -> str:
    return f"""y = Scan<num_scan_inputs=2, scan_output_axes=[1], scan_input_directions=[1,1],
        scan_output_directions=[1], body = turn (float[400,32] p, float[400,4] c) =>
          (float[N,4] g) {{ {SCORES} {inner} }}>(x, corners)"""


NESTED = f"""y = Loop(n, yes) <body = turn (int64 t, bool again) => (bool go, float[N,4] e) {{
    p = Gather(x, t) c = Gather(corners, t) {SCORES}
    is_two = Equal(t, two) go = Identity(again)
    e = If(is_two) <then_branch = a () => (float[M,4] o) {{ o = Slice(d, begin, ends) }},
      else_branch = b () => (float[M,4] g) {{ {TOP} }}> }}>"""

LONGER = f"""none = Slice(corners0, begin, begin)
  y = Loop(n, yes, none) <body = turn (int64 t, bool again, float[A,4] so) =>
      (bool go, float[B,4] on_) {{
    p = Gather(x, t) c = Gather(corners, t) {SCORES} {NMS}
    on_ = Concat<axis=0>(so, g) go = Identity(again) }}>"""

PLACES = {
    "TopK in If": branch(TOP),
    "NMS in If": branch(NMS),
    "TopK in Loop": loop(TOP),
    "ArgMax in Loop": loop(BEST),
    "NMS in a Loop that gathers": LONGER,
    "NonZero in Scan": scan(ABOVE),
    "TopK in Scan": scan(TOP),
    "TopK in If in Loop": NESTED,
}


def detector(place: str, low: int = 1, scale: float = 1.0, boxes: float = 1.0) -> onnx.ModelProto:
    """Return 400 boxes a picture with scores of near ties, of which a node in a body selects."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]> g {ENDS}
          <{WEIGHTS}, int64[2] groups = {{40,10}}, int64[3] grouped = {{40,10,4}},
           int64[1] ends = {{100}}, int64 zero_at = {{0}},
           float scale = {{{scale}}}, float by = {{{boxes}}}> {{
          corners0 = Gather(corners, zero_at) {PLACES[place]} }}""".replace("LOW", str(low))
    )
    weight = RNG(5).standard_normal((32, 1)).astype(np.float32) / 6
    model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    return model


def fed(seed: int = 0) -> dict[str, Any]:
    rng = RNG(seed)
    place = rng.uniform(0, 600, (PICTURES, BOXES, 2))
    corners = np.concatenate([place, place + rng.uniform(10, 90, (PICTURES, BOXES, 2))], 2)
    x = rng.standard_normal((PICTURES, BOXES, 32))
    x[:, 1::2] = x[:, ::2] * (1 + 2e-3 * rng.standard_normal((PICTURES, BOXES // 2, 32)))
    x[..., :31] *= 4  # near ties
    return {
        "x": x.astype(np.float32),
        "corners": corners.astype(np.float32),
        "on": np.array(True),
        "n": np.array(PICTURES),
    }


def checked(place: str, **wrong: float) -> VerifyReport:
    data = [fed(seed) for seed in range(2)]
    return verify(detector(place), detector(place, 16, **wrong), data)


FEW = ("NMS in a Loop that gathers", "TopK in If in Loop", "NonZero in Scan")
SOME = [p if p in FEW else pytest.param(p, marks=pytest.mark.slow) for p in PLACES]


@pytest.mark.parametrize("place", SOME)
def test_swapped_near_ties_inside_bodies_fail_no_good_model(place: str) -> None:
    report = checked(place)
    assert report.ok, report.to_text()
    (found,) = report.selections
    assert found.told
    assert 0.2 < found.agreement < 1 or place == "NMS in If"  # the same boxes in another order
    assert found.margin is not None
    assert found.margin < 0.045
    assert "(" not in found.value


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_selection_by_other_numbers_inside_a_body_fails(place: str) -> None:
    report = checked(place, scale=-1.0)
    assert not report.ok
    assert report.doubt is None
    assert not report.selections[0].ok


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_wrong_values_of_the_right_selection_inside_a_body_fail(place: str) -> None:
    report = checked(place, boxes=0.9)
    assert not report.ok
    assert report.doubt is None


def test_choices_of_too_many_turns_leave_the_verdict_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unrolled_models, "MOST_NODES", 20)
    report = checked("TopK in Loop")
    assert not report.ok
    assert report.untold == ("Loop y runs more nodes than are unrolled (20 nodes at most)",)
    assert report.doubt is not None
    assert "A swapped near tie may be the only difference" in report.doubt
    assert "In doubt: nodes inside If, Loop or Scan select by values" in report.to_text(600)


def test_a_branch_that_the_original_does_not_take_is_no_near_tie() -> None:
    wrong = detector("TopK in If", 16)
    (node,) = (n for n in wrong.graph.node if n.op_type == "If")
    wrong.graph.node.insert(0, onnx.helper.make_node("Not", ["on"], ["off"]))
    node.input[0] = "off"
    report = verify(detector("TopK in If"), wrong, fed())
    assert not report.ok
    assert report.doubt is None


OLD = """<ir_version: 6, opset_import: ["" : 11]> g (float[400,32] x, int64 n) => (float y)
  <int64[1] k = {100}, bool yes = {1}> {
  h = Cast<to=LOW>(x) lw = Cast<to=LOW>(weight) m = MatMul(h, lw) f = Cast<to=1>(m)
  s = Squeeze<axes=[1]>(f)
  y = Loop(n, yes) <body = turn (int64 t, bool again) => (bool go, float[100,32] g) {
    o = Cast<to=1>(t) z = Add(s, o) v, i = TopK(z, k) g = Gather(x, i) go = Identity(again) }> }"""

BEAMS = """<ir_version: 9, opset_import: ["" : 18]> g (float[1,64] x, int64 n) => (int64 y, float e)
  <int64[1] k = {4}, bool yes = {1}, int64[2] flat = {1,-1}, int64 words = {100},
   int64[2] beams = {4,1}, int64[1] column = {1}, float[1,4] first = {0,-9,-9,-9},
   int64[1] zero = {0}, float keep = {0.5}> {
  four = Expand(x, [4,64])
  lw = Cast<to=LOW>(embedding) ow = Cast<to=LOW>(head)
  last, e, y = Loop(n, yes, four, first)
    <body = turn (int64 t, bool again, float[4,64] states, float[1,4] so_far) =>
      (bool go, float[4,64] next, float[1,4] v, int64[1,4] token) {
    h = Cast<to=LOW>(states) m = MatMul(h, ow) f = Cast<to=1>(m) p = LogSoftmax<axis=1>(f)
    column_ = Reshape(so_far, beams) all = Add(p, column_) row = Reshape(all, flat)
    v, i = TopK<axis=1>(row, k) token = Mod(i, words) beam = Div(i, words)
    b = Squeeze(beam, zero) w = Squeeze(token, zero)
    old = Gather(states, b) word = Gather(lw, w) new = Cast<to=1>(word)
    half = Mul(old, keep) sum = Add(half, new) next = Tanh(sum) go = Identity(again) }> }"""


def old(low: int = 1) -> onnx.ModelProto:
    model = onnx.parser.parse_model(OLD.replace("LOW", str(low)))
    weight = RNG(5).standard_normal((32, 1)).astype(np.float32) / 6
    model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    return model


def beam_search(low: int = 1, wrong: float = 1.0) -> onnx.ModelProto:
    """Return a decoder that keeps the best four of 400 ways to go on, twelve times."""
    text = BEAMS.replace("LOW", str(low)).replace("[4,64])", "shape)")
    model = onnx.parser.parse_model(
        text.replace("int64[1] zero", "int64[2] shape = {4,64}, int64[1] zero")
    )
    rng = RNG(1)
    embedding = rng.standard_normal((100, 64)).astype(np.float32)
    head = rng.standard_normal((64, 100)).astype(np.float32) / 8
    head[:, 1::2] = head[:, ::2] * (1 + 1e-3 * rng.standard_normal((64, 50)).astype(np.float32))
    weights = {"embedding": embedding, "head": wrong * head}
    model.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    return model


def prompts() -> list[dict[str, Any]]:
    return [
        {"x": RNG(seed).standard_normal((1, 64)).astype(np.float32), "n": np.array(12)}
        for seed in range(3)
    ]


def test_beams_are_compared_along_the_original_s_ways() -> None:
    report = verify(beam_search(), beam_search(16), prompts())
    assert report.ok, report.to_text()
    (found,) = report.selections
    assert found.told
    assert found.chosen >= 48
    assert found.agreement < 1


@pytest.mark.parametrize("wrong", [-1.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_beams_by_other_scores_fail(wrong: float) -> None:
    report = verify(beam_search(), beam_search(16, wrong), prompts())
    assert not report.ok
    assert report.doubt is None


def test_bodies_of_opsets_whose_axes_are_attributes_are_unrolled() -> None:
    feeds = {"x": fed()["x"][0], "n": np.array(3)}
    report = verify(old(), old(10), feeds)
    assert report.ok, report.to_text()
    assert report.selections[0].told


def called(low: int = 1, scale: float = 1.0, boxes: float = 1.0, place: str = "") -> Any:
    """Return a detector whose TopK stands in a local function, called at once or inside an If."""
    call = "y = loc.pick(x, weight, dd, k)"
    if place == "If":
        inside = call.replace("y =", "g =")
        call = f"""y = If(on) <then_branch = a () => (float[N,4] g) {{ {inside} }},
            else_branch = b () => (float[M,4] o) {{ o = Identity(dd) }}>"""
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18, "loc" : 1]>
        g (float[400,32] x, float[400,4] d, bool on) => (float[N,4] y)
        <int64[1] k = {{100}}, float by = {{{boxes}}}> {{ dd = Mul(d, by) {call} }}
        <opset_import: ["" : 18], domain: "loc"> pick (h, w, d, k) => (g) {{
          hl = Cast<to = {low}>(h) wl = Cast<to = {low}>(w) m = MatMul(hl, wl) f = Cast<to = 1>(m)
          first = Constant<value = int64[1] {{1}}>() s = Squeeze(f, first) v, i = TopK(s, k)
          g = Gather(d, i) }}"""
    )
    weight = scale * RNG(5).standard_normal((32, 1)).astype(np.float32) / 6
    model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), "weight"))
    return model


@pytest.mark.parametrize("place", ["", "If"])
def test_selections_inside_local_functions_are_told_too(place: str) -> None:
    given = fed()
    data = {"x": given["x"][0], "d": given["corners"][0], "on": given["on"]}
    right = verify(called(place=place), called(16, place=place), data)
    assert right.ok, right.to_text()
    assert [found.told for found in right.selections] == [True]
    assert not verify(called(place=place), called(16, boxes=0.9, place=place), data).ok
    assert not verify(called(place=place), called(16, scale=-1.0, place=place), data).ok


def test_a_batched_scan_leaves_the_verdict_in_doubt() -> None:
    def model(low: int) -> onnx.ModelProto:
        made = onnx.parser.parse_model(
            f"""<ir_version: 4, opset_import: ["" : 8]>
            g (float[1,A,400,32] x, float[1,A,400,4] d) => (float[1,A,100,4] y) {{
              y = Scan<num_scan_inputs = 2, body = turn (float[400,32] p, float[400,4] c) =>
                  (float[100,4] g) {{
                h = Cast<to = {low}>(p) lw = Cast<to = {low}>(weight) m = MatMul(h, lw)
                f = Cast<to = 1>(m) s = Squeeze<axes = [1]>(f) v, i = TopK<k = 100>(s)
                g = Gather(c, i) }}>(, x, d) }}"""
        )
        weight = RNG(5).standard_normal((32, 1)).astype(np.float32) / 6
        made.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
        return made

    given = fed()
    report = verify(model(1), model(10), {"x": given["x"][None], "d": given["corners"][None]})
    assert not report.ok
    assert report.untold == ("Scan y is of opset 8, whose batches are not unrolled",)
    assert report.doubt is not None
