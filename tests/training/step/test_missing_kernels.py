"""Operators without a kernel are spelled out in others that compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.cli.main import NOT_STRICT, main
from amp_rewrite.errors import UnloadableError
from amp_rewrite.training.step.missing_kernels import lower_missing

HEADER = '<ir_version: 8, opset_import: ["" : 18]>'
RNG = np.random.default_rng(5)
SCORES = RNG.normal(size=(4, 3, 5)).astype(np.float32) * 30
LABELS = RNG.integers(0, 3, (4, 5))
WEIGHTS = np.array([0.5, 2, 1], np.float32)


def cross_entropy(attributes: str, weights: str = "") -> str:
    return (
        "g (float[N,3,5] x, int64[N,5] t, float[3] w) => (float y, float[N,3,5] p)"
        f"{{ y, p = SoftmaxCrossEntropyLoss{attributes}(x, t{weights}) }}"
    )


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "a sum of one": ("g (float[2] a) => (float[2] y) { y = Sum(a) }", {"a": np.ones(2)}),
    "a sum of three": (
        "g (float[2] a, float[3,1] b, float c) => (float[3,2] y) { y = Sum(a, b, c) }",
        {"a": np.array([1, 2]), "b": np.array([[3], [4], [5]]), "c": np.array(6)},
    ),
    "blocks": (
        "g (float[N,3,4,6] x) => (float[N,12,2,3] y) { y = SpaceToDepth<blocksize: int = 2>(x) }",
        {"x": np.arange(144).reshape(2, 3, 4, 6)},
    ),
    "a mean loss": (cross_entropy(""), {}),
    "a summed loss": (cross_entropy('<reduction: string = "sum">'), {}),
    "losses": (cross_entropy('<reduction: string = "none">'), {}),
    "a weighted loss": (cross_entropy("", ", w"), {}),
    "a loss that ignores": (cross_entropy("<ignore_index: int = 1>"), {}),
    "a weighted loss that ignores": (cross_entropy("<ignore_index: int = 1>", ", w"), {}),
    "a summed weighted loss": (cross_entropy('<reduction: string = "sum">', ", w"), {}),
}


def results(model: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    return amp.Evaluator(model, emulate=False).run(feeds)


@pytest.mark.parametrize("name", CASES)
def test_what_is_spelled_out_computes_the_same(name: str) -> None:
    text, given = CASES[name]
    if name == "losses":
        text = text.replace("(float y,", "(float[N,5] y,")
    model = amp.load(onnx.parser.parse_model(f"{HEADER} {text}"))
    fed = given or {"x": SCORES, "t": LABELS, "w": WEIGHTS}
    feeds = {n: a if n == "t" else np.asarray(a, np.float32) for n, a in fed.items()}
    expected = results(model, feeds)
    lower_missing(model, targets.find("webgpu"))
    kept = {"Sum", "SpaceToDepth", "SoftmaxCrossEntropyLoss"}
    assert not kept & {node.op_type for node in model.graph}
    found = results(model, feeds)
    assert found.keys() == expected.keys()
    for output, array in expected.items():
        np.testing.assert_allclose(found[output], array, rtol=1e-5, atol=1e-5)


def test_an_ignored_label_may_be_no_class() -> None:
    text = cross_entropy("<ignore_index: int = -1>")
    model = amp.load(onnx.parser.parse_model(f"{HEADER} {text}"))
    feeds = {"x": SCORES, "t": np.where(LABELS == 0, -1, LABELS), "w": WEIGHTS}
    expected = results(model, feeds)["y"]
    lower_missing(model, targets.find("webgpu"))
    assert results(model, feeds)["y"] == pytest.approx(expected, rel=1e-5)


def test_what_has_a_kernel_stays() -> None:
    text, _ = CASES["a sum of three"]
    model = amp.load(onnx.parser.parse_model(f"{HEADER} {text}"))
    for target in ("cuda", "cpu", "schema"):
        lower_missing(model, targets.find(target))
    assert [node.op_type for node in model.graph] == ["Sum"]


def test_blocks_of_an_unknown_size_stay() -> None:
    text = "g (float[N,3,H,6] x) => (float[N,12,P,3] y) { y = SpaceToDepth<blocksize: int = 2>(x) }"
    model = amp.load(onnx.parser.parse_model(f"{HEADER} {text}"))
    lower_missing(model, targets.find("webgpu"))
    assert [node.op_type for node in model.graph] == ["SpaceToDepth"]


POOL = "AveragePool<kernel_shape = [2, 2], strides = [2, 2]>"
BODIES = {
    "a float16 pool of a new opset": (
        19,
        f"c = Conv(x, k) h = Cast<to = 10>(c) q = {POOL}(h) p = Cast<to = 1>(q)",
        "AveragePool of tensor(float16), opset 19",
    ),
    "a Conv of doubles": (
        17,
        f"d = Cast<to = 11>(x) e = Cast<to = 11>(k) s = Conv(d, e) c = Cast<to = 1>(s) "
        f"p = {POOL}(c)",
        "Conv of tensor(double), opset 17",
    ),
}
FINE = {
    "a float16 pool": (17, BODIES["a float16 pool of a new opset"][1]),
    "a float32 pool of a new opset": (19, f"c = Conv(x, k) p = {POOL}(c)"),
    "operators that are functions": (18, f"c = Conv(x, k) m = Mish(c) p = {POOL}(m)"),
    "a custom operator": (17, f"c = Conv(x, k) m = mine.Own(c) o = Add(c, c) p = {POOL}(o)"),
}


def model(opset: int, body: str) -> onnx.ModelProto:
    """Return a classifier of images (N, 1, 6, 6) with a body from x to p, (N, 1, 2, 2)."""
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "mine" : 1]> '
        "g (float[N,1,6,6] x, int64[N] labels) => (float[N,2] logits) "
        "<float[1,1,3,3] k = {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9}, "
        "float[4,2] w = {1,2,3,4,5,6,7,8}> "
        f"{{ {body} f = Flatten(p) logits = MatMul(f, w) }}"
    )


def step(opset: int, body: str, target: str = "cpu-arm64") -> Any:
    loss = amp.losses.softmax_cross_entropy(amp.load(model(opset, body)), "logits", "labels")
    train_op = amp.optimizers.GradientDescent(0.1).minimize(loss)
    return amp.build_step(train_op, precision="float16", target=target)


@pytest.mark.parametrize("name", BODIES)
def test_a_step_with_a_node_that_arm_has_no_kernel_for_is_refused(name: str) -> None:
    opset, body, found = BODIES[name]
    with pytest.raises(UnloadableError, match="no kernel for a node") as caught:
        step(opset, body)
    assert found in str(caught.value)
    assert step(opset, body, "cuda").graph


@pytest.mark.parametrize("name", FINE)
def test_other_steps_are_given_out(name: str) -> None:
    assert step(*FINE[name]).graph


@pytest.mark.share(2)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("command", ["train-step", "inject"])
def test_commands_write_no_such_step(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: Any) -> int:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return int(ended.value.code or 0)

    opset, body, found = BODIES[name]
    forward, output = tmp_path / "forward.onnx", tmp_path / "step.onnx"
    onnx.save(model(opset, body), forward)
    loss = ["--loss", "softmax-cross-entropy:logits:labels"]
    given = ["--precision", "float16", "--target", "cpu-arm64"]
    if command == "inject":
        wide = tmp_path / "wide.onnx"
        assert run("train-step", forward, "-o", wide, *loss) == 0
        capsys.readouterr()
        status = run("inject", wide, "-o", output, *given)
    else:
        status = run("train-step", forward, "-o", output, *loss, *given, "--quiet")
    said = capsys.readouterr().err
    assert status == NOT_STRICT
    assert found in said
    assert len(said.strip().splitlines()) == 1
    assert not output.exists()


@pytest.mark.arm64
@pytest.mark.parametrize("name", BODIES)
def test_the_processor_does_not_load_what_is_refused(name: str, arm64: Any, tmp_path: Path) -> None:
    opset, body, _ = BODIES[name]
    path = tmp_path / "step.onnx"
    amp.save(step(opset, body, "cuda"), path)
    with pytest.raises(amp.AmpError, match=r"cannot load.*(kernel|implementation)"):
        arm64(path)


@pytest.mark.arm64
@pytest.mark.parametrize("name", [name for name in FINE if "custom" not in name])
def test_the_processor_loads_what_is_given_out(name: str, arm64: Any, tmp_path: Path) -> None:
    path = tmp_path / "step.onnx"
    amp.save(step(*FINE[name]), path)
    assert arm64(path).inputs
