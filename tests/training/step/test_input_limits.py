"""What the operators of a step say of its inputs."""

import onnx
import pytest

import amp_rewrite as amp
from amp_rewrite.training.step.input_limits import IndexRange, input_limits

HEAD = """<ir_version: 8, opset_import: ["": 17]>
g (int64[N] i, float[N, 3] x, float[5, 3] w, float[M, 3] open) => (float[N, 3] y) {"""


def ranges(body: str) -> list[IndexRange]:
    graph = amp.load(onnx.parser.parse_model(HEAD + body + "}")).graph
    return list(input_limits(graph, ["i", "x"]).ranges.get("i", ()))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Gather(w, i)", [(-5, 5)]),
        ("y = Gather<axis = 1>(w, i)", [(-3, 3)]),
        ("a = Identity(i) b = Cast<to = 6>(a) y = Gather(w, b)", [(-5, 5)]),
        ("l = SoftmaxCrossEntropyLoss(x, i) y = Add(x, l)", [(0, 3)]),
        ("l = SoftmaxCrossEntropyLoss(x, i) g = Gather(w, i) y = Add(g, l)", [(0, 3), (-5, 5)]),
        ("y = Gather(open, i)", []),
        ("one = Constant<value_int = 1>() j = Sub(i, one) y = Gather(w, j)", []),
        ("c = Constant<value_ints = [2]>() z = Constant<value_ints = [0]>() "
         "j = Slice(i, z, c) y = Gather(w, j)", []),
        ("f = Cast<to = 1>(i) s = ReduceSum(f) y = Add(x, s)", []),
    ],
)  # fmt: skip
def test_ranges_are_those_of_the_operators_that_read_every_element(body, expected) -> None:
    assert [(r.low, r.high) for r in ranges(body)] == expected


def test_a_range_knows_what_is_ignored_and_whether_the_loss_is_a_mean() -> None:
    [found] = ranges("l = SoftmaxCrossEntropyLoss<ignore_index = -1>(x, i) y = Add(x, l)")
    assert (found.ignored, found.averages, found.what) == (-1, True, "class")
    [found] = ranges('l = SoftmaxCrossEntropyLoss<reduction = "sum">(x, i) y = Add(x, l)')
    assert (found.ignored, found.averages) == (None, False)
