"""Constants whose rounding alone makes a model fail: what reads them stays float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import amp_rewrite as amp

Model = onnx.ModelProto


def weight(*shape: int, seed: int = 0) -> Any:
    """Return a weight that keeps the scale of what it multiplies."""
    normal = np.random.default_rng(seed).standard_normal(shape)
    return (normal / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def parsed(text: str, **constants: Any) -> Model:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> g {text}')
    for name, value in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return model


def offset(constant: str = "", **given: Any) -> Model:
    """Return a large offset that is taken off again, 1.5 too little."""
    return parsed(
        f"""(float[4,16] x) => (float[4,16] y) {{ {constant} r = Relu(x)
        a = MatMul(r, w) b = Add(a, o) c = Sub(b, p) y = MatMul(c, w2) }}""",
        **({} if constant else {"o": np.float32(3000.7)}),
        p=np.float32(2999.2),
        w=weight(16, 16),
        w2=weight(16, 16, seed=1),
        **given,
    )


def offset_of_a_node() -> Model:
    return offset("o = Constant<value = float {3000.7}>()")


def offset_in_a_branch() -> Model:
    return parsed(
        """(bool k, float[4,16] x) => (float[4,16] y) {
        y = If(k) <then_branch = t () => (float[4,16] r) <float o = {3000.7}, float p = {2999.2}> {
          z = Relu(x) a = MatMul(z, w) b = Add(a, o) c = Sub(b, p) r = MatMul(c, w2) },
        else_branch = e () => (float[4,16] q) { q = MatMul(x, w) }> }""",
        w=weight(16, 16),
        w2=weight(16, 16, seed=1),
    )


def table_of_positions() -> Model:
    """Return a table with steps of 0.05 about 4,000, which is also what is stored in 16 bits."""
    rows = 4000 + 0.05 * np.arange(64)[:, None] * np.ones((1, 16))
    return parsed(
        """(int64[1,32] i, float[1,32,16] x) => (float[1,32,16] y) { p = Gather(table, i)
        r = Reshape(p, shape) q = Sub(r, base) h = Add(x, q) y = MatMul(h, w) }""",
        table=rows.astype(np.float32),
        base=np.float32(4001),
        shape=np.array([1, 32, 16]),
        w=weight(16, 16),
    )


MENDED = [offset, offset_of_a_node, offset_in_a_branch, table_of_positions]


def batch(model: Model) -> dict[str, Any]:
    rng, feeds = np.random.default_rng(5), dict[str, Any]()
    for given in model.graph.input:
        kind = given.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        if kind.elem_type == onnx.TensorProto.FLOAT:
            feeds[given.name] = rng.standard_normal(shape).astype(np.float32)
        elif kind.elem_type == onnx.TensorProto.BOOL:
            feeds[given.name] = np.array(True)
        else:
            feeds[given.name] = rng.integers(0, 64, shape)
    return feeds


def error(original: Model, made: Any, feeds: dict[str, Any]) -> float:
    """Return the largest error of y, relative to its largest magnitude."""
    before, after = (np.asarray(amp.evaluate(m, feeds)["y"], np.float64) for m in (original, made))
    return float(np.abs(after - before).max() / np.abs(before).max())


@pytest.mark.share(2)
@pytest.mark.parametrize("with_data", [False, True], ids=["made up", "data"])
@pytest.mark.parametrize("made", MENDED, ids=lambda made: made.__name__)
def test_what_reads_a_constant_that_rounding_spoils_stays_float32(
    made: Any, with_data: bool
) -> None:
    model = made()
    feeds = batch(model)
    assert error(model, amp.rewrite(model).model, feeds) > 0.1
    found = amp.convert(model, [feeds] if with_data else None, stress=False)
    assert found.writable, found.verdict
    assert found.is_low
    assert error(model, found.model, feeds) < 0.01


def test_the_verdict_and_the_report_name_what_was_kept() -> None:
    found = amp.convert(offset(), stress=False)
    assert "2 nodes float32 for their constants" in str(found.verdict)
    add, subtract = found.constants
    assert add.why.startswith("rounding its constant o to float16 alone brings ")
    assert found.to_dict()["verdict"]["constants"] == [add.node, subtract.node]
    assert "its constant o" in amp.explain(found, add.node)


def test_a_tolerance_that_one_constant_spoils_costs_its_reader_alone() -> None:
    found = amp.convert(offset(), [batch(offset())], rtol=0.01)
    assert found.writable
    assert len(found.constants) == 2
    assert found.tuning is None


def test_no_constant_is_looked_at_where_the_model_holds() -> None:
    steps: list[str] = []
    good = parsed("(float[4,16] x) => (float[4,16] y) { y = MatMul(x, w) }", w=weight(16, 16))
    assert amp.convert(good, progress=steps.append, stress=False).constants == ()
    amp.convert(offset(), progress=steps.append, stress=False)
    assert steps.count("looking for constants that rounding spoils") == 1


def test_errors_of_many_weights_that_add_up_are_left_to_tuning() -> None:
    model = parsed(
        "(float[4,64] x) => (float[4,64] y) { "
        + " ".join(f"h{i + 1} = MatMul(h{i}, w{i})" for i in range(8)).replace("h0,", "x,")
        + " y = Identity(h8) }",
        **{f"w{i}": weight(64, 64, seed=i) for i in range(8)},
    )
    x = np.random.default_rng(3).standard_normal((4, 64)).astype(np.float32)
    found = amp.convert(model, [{"x": x}], precision="bfloat16", rtol=0.004, budget=60)
    assert found.writable
    assert found.tuning is not None
    assert found.is_low
    assert 0 < len(found.constants) + len(found.tuning.keep) < 8


def test_a_strict_rewrite_is_mended_as_well() -> None:
    found = amp.convert(offset(), [batch(offset())], strict=True, stress=False)
    assert found.writable
    assert len(found.constants) == 2
