"""calibrate: running statistics inside the runtime, and exactly the vertices concerned."""

from typing import Any

import numpy as np
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import DataError, RunError
from amp_rewrite.numerics.ranges.calibrate import calibrate
from amp_rewrite.oplists import load_lists


def model(body, weights="", inputs="float[N,4] x", outputs="float[N,4] y", opset=17):
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => ({outputs})'
    return onnx.parser.parse_model(f"{text} <{weights}> {{{body}}}")


def square(value, name="w"):
    return f"float[4,4] {name} = {{{','.join([f'{value:g}'] * 16)}}}"


def constant(value, rows=2) -> dict[str, Any]:
    return {"x": np.full((rows, 4), value, np.float32)}


TWO = model(
    "[first] h = MatMul(x, w) [act] a = Relu(h) [second] y = MatMul(a, v)",
    f"{square(1)}, {square(1e-3, 'v')}",
)


def test_the_largest_magnitude_of_every_batch_counts():
    found = calibrate(TWO, [constant(1.0), constant(-30000.0), constant(2.0)], margin=1)
    assert found.ranges["h"].largest == 120000
    assert found.batches == 3


def test_exactly_the_vertices_that_carry_the_value_are_denied_with_the_measured_range():
    data = [constant(20000.0)]
    found = calibrate(TWO, data, margin=1, target="schema")
    assert [(r.node, r.variable) for r in found.rules] == [
        ("first", "T"),
        ("act", "T"),
        ("second", "T"),
    ]
    assert found.rules[0].why == "measured 8e+04 > 65504 over 1 batch"
    negative = calibrate(TWO, [constant(-20000.0)], margin=1, target="schema")
    assert [r.node for r in negative.rules] == ["first", "act"]


def test_infinities_of_the_float32_model_are_not_held_against_it():
    masked = model("[add] h = Add(x, x) [mul] y = MatMul(h, w)", square(1))
    feeds = {"x": np.array([[1, 2, 3, -np.inf]], np.float32)}
    found = calibrate(masked, [feeds], target="schema")
    assert found.ranges["h"].largest == 6
    assert found.rules == ()


def test_partial_sums_of_a_reduction_count_although_they_cancel():
    lists = load_lists(environ={"AMP_REWRITE_DENYLIST_REMOVE": "ReduceSum",
                                "AMP_REWRITE_INFERLIST_ADD": "ReduceSum"})  # fmt: skip
    cancelling = model(
        "[a] h = MatMul(x, w) [sum] s = ReduceSum<keepdims = 1>(h) [b] y = MatMul(s, u)",
        "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[1,4] u = {1,1,1,1}",
        outputs="float[1,4] y",
    )
    data = [{"x": np.array([[30000, -30000, 30000, -30000]], np.float32)}]
    found = calibrate(cancelling, data, lists=lists, target="schema", margin=1)
    assert [r.node for r in found.rules] == ["sum"]
    assert found.rules[0].why == "partial sums reached 1.2e+05 > 65504 over 1 batch"


POOLS = {
    "global": ("[sum] k = GlobalAveragePool(h)", 128 * 128),
    "window": ("[sum] k = AveragePool<kernel_shape = [8, 8], strides = [8, 8]>(h)", 64),
    "product": ("[sum] k = Conv(h, v)", 4),
    "scaled": ("f = Flatten<axis = 3>(h) [sum] k = Gemm<alpha = 0.001, transB = 1>(f, f)", 128),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize(("target", "adds_low"), [("webgpu", True), ("cuda", False)])
def test_partial_sums_count_where_the_target_keeps_them_low(name, target, adds_low):
    body, terms = POOLS[name]
    source = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,128,128] x) => (float y)'
        f"<float[1,1,2,2] v = {{1,1,-1,-1}}> {{ h = Relu(x) {body} y = ReduceMax(k) }}"
    )
    feeds = {"x": np.full((1, 1, 128, 128), 2 * 65504 / terms, np.float32)}
    options = {"target": target, "allow_nodes": ["*"], "margin": 1}
    if name == "scaled":
        feeds["x"] = np.sqrt(feeds["x"])
    why = {rule.node: rule.why for rule in calibrate(source, [feeds], **options).rules}
    expected = "partial sums reached 1.31e+05 > 65504 over 1 batch" if adds_low else None
    assert why.get("sum") == expected


@pytest.mark.parametrize("opset", [9, 13, 18])
def test_values_inside_branches_and_loops_are_measured(opset):
    nested = model(
        """[a] h = MatMul(x, w)
        [if] k = If(c) <then_branch = t () => (float[N,4] p) {[in_then] p = MatMul(h, w)},
                        else_branch = e () => (float[N,4] q) {[in_else] q = Neg(h)}>
        [loop] y = Loop(n, on, k) <body = b (int64 i, bool c0, float[N,4] s)
            => (bool c1, float[N,4] r) {[same] c1 = Identity(c0) [step] r = MatMul(k, w)}>""",
        f"{square(1)}, bool on = {{1}}",
        inputs="float[N,4] x, bool c, int64 n",
        opset=opset,
    )

    def feeds(taken, steps):
        return {**constant(1.0), "c": np.array(taken), "n": np.array(steps, np.int64)}

    found = calibrate(nested, [feeds(False, 0)])
    assert found.ranges["p"].largest == 0
    assert found.ranges["r"].largest == 0
    assert found.ranges["q"].largest == 4
    found = calibrate(nested, [feeds(True, 3), feeds(False, 1)])
    assert found.ranges["p"].largest == 16
    assert found.ranges["r"].largest == 16 * 4
    assert found.unmeasured == ()


def test_the_overlay_is_an_op_list_that_convert_takes(tmp_path):
    found = calibrate(TWO, [constant(20000.0)])
    found.save(tmp_path / "overlay.yaml")
    alone = amp.rewrite(TWO, lists=str(tmp_path / "overlay.yaml"))
    over = amp.rewrite(TWO, lists=["float16_cuda", str(tmp_path / "overlay.yaml")])
    for result in (alone, over):
        assert not result.changed
        record = result.report.nodes[0].variables["T"]
        assert record.reason == "node-rule"
        assert "measured 8e+04 > 65504 over 1 batch" in (record.detail or "")


def test_data_come_from_npz_files_and_folders_one_at_a_time(tmp_path):
    for i in range(3):
        np.savez(tmp_path / f"{i}.npz", **constant(float(i)))
    seen = []
    found = calibrate(TWO, tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert found.ranges["h"].largest == 8
    assert calibrate(TWO, [tmp_path / "1.npz"]).batches == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "no batch"),
        ([{"z": np.zeros((1, 4), np.float32)}], "lack the input 'x'"),
        ([{"x": np.zeros((1, 5), np.float32)}], r"'x' has another shape; found \[1, 5\]; expected"),
        ([{"x": np.zeros((1, 4), bool)}], r"'x' has another type; found bool; .*astype\('float32'"),
        ([3], "not a batch"),
        ("/nowhere/at/all.npz", "no such data"),
    ],
)
def test_wrong_data_are_one_line(data, message):
    with pytest.raises((DataError, RunError), match=message) as caught:
        calibrate(TWO, data)
    assert "\n" not in str(caught.value)


def test_quantised_values_of_opset_21_are_measured():
    weights = f"{square(1)}, float s = {{1}}, int8 z = {{0}}"
    quantised = "[q] i = QuantizeLinear(h, s, z) [d] j = DequantizeLinear(i, s, z)"
    body = f"[p] h = MatMul(x, w) {quantised} [r] r = Relu(j) [m] y = MatMul(r, w)"
    given = model(body, weights, inputs="float[2,4] x", opset=21)
    found = calibrate(given, [constant(5.0)], margin=1)
    assert found.ranges["h"].largest == 20
