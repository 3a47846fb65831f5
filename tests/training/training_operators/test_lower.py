from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from backend_cases import all_cases
from onnx import parser
from releases import needs

from amp_rewrite.errors import GraphError
from amp_rewrite.grad import GradientError
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.io.save import to_proto
from amp_rewrite.runtimes.ort.sessions import Session
from amp_rewrite.training.training_operators import TrainingInfoError, lower_training_operators

DOMAIN = "ai.onnx.preview.training"
NODE_CASES = (
    "test_adagrad",
    "test_adagrad_multiple",
    "test_adam",
    "test_adam_multiple",
    "test_momentum",
    "test_momentum_multiple",
    "test_nesterov_momentum",
)
MODEL_CASES = ("test_gradient_of_add", "test_gradient_of_add_and_mul")


@cache
def backend_cases() -> dict[str, Any]:
    from onnx.backend.test.case import model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy warns while onnx makes other cases
        return {c.name: c for c in (*all_cases(), *model.collect_testcases())}


def model_of(text: str, opset: int = 18) -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "{DOMAIN}" : 1]>{text}'
    )


def run(source: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, np.ndarray]:
    """Lower a model, check it, and run it in ONNX Runtime."""
    before = source.SerializeToString(deterministic=True)
    lowered = lower_training_operators(source)
    assert source.SerializeToString(deterministic=True) == before
    proto = to_proto(lowered)
    onnx.checker.check_model(proto, full_check=True)
    assert DOMAIN not in {entry.domain for entry in proto.opset_import}
    assert [o.name for o in proto.graph.output] == [o.name for o in source.graph.output]
    session = Session(lowered)
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    return dict(zip(session.outputs, session.run(arrays), strict=True))


@pytest.mark.parametrize("name", [*NODE_CASES, *MODEL_CASES])
def test_a_backend_case_holds_when_lowered(name: str):
    if name == "test_adam_multiple":
        needs("onnx", (1, 22), "expects another epsilon than it passes")
    case = backend_cases()[name]
    inputs = [v.name for v in case.model.graph.input]
    for given, expected in case.data_sets:
        found = run(case.model, dict(zip(inputs, given, strict=True)))
        for value, right in zip(found.values(), expected, strict=True):
            assert value.dtype == right.dtype
            np.testing.assert_allclose(value, right, rtol=1e-6, atol=case.atol)


def test_a_learning_rate_and_a_count_with_an_axis_add_none_to_the_tensors():
    model = model_of(f"""
        step (float[1] r, int64[1] t, float x, float g, float h) => (float x_new, float h_new) {{
            x_new, h_new = {DOMAIN}.Adagrad(r, t, x, g, h)
        }}""")
    one = np.float32(1)
    found = run(
        model,
        {"r": np.ones(1, np.float32), "t": np.zeros(1, np.int64), "x": one, "g": one, "h": one},
    )
    assert found["x_new"].shape == ()
    assert found["h_new"] == 2


X, Z = np.array([1.5, -2.0], np.float32), np.array([3.0, 0.5], np.float32)
GRADIENTS = {
    "of a tensor seeds ones": (
        f'y = Mul(x, z) g = {DOMAIN}.Gradient<xs = ["x"], zs = ["z"], y = "y">(x, z)',
        Z,
    ),
    "written before what it differentiates": (
        f'g = {DOMAIN}.Gradient<xs = ["x"], zs = ["z"], y = "y">(x, z) y = Mul(x, z)',
        Z,
    ),
    "with a tensor that y depends on held constant": (
        f'h = Mul(x, x) y = Mul(h, x) g = {DOMAIN}.Gradient<xs = ["x"], zs = ["h"], y = "y">(x, h)',
        X * X,
    ),
    "by an intermediate tensor": (
        f'h = Mul(x, z) y = Mul(h, h) g = {DOMAIN}.Gradient<xs = ["h"], y = "y">(h)',
        2 * X * Z,
    ),
    "by tensors of which one is computed from another": (
        f"""h = Mul(x, x) y = Mul(h, x)
        k, g = {DOMAIN}.Gradient<xs = ["h", "x"], y = "y">(h, x)""",
        X * X,
    ),
    "of an intermediate tensor by itself": (
        f'y = Mul(x, z) g = {DOMAIN}.Gradient<xs = ["y"], y = "y">(y)',
        0 * X + 1,
    ),
    "by an intermediate tensor that is its own derivative": (
        f"""h = Exp(x) s = Mul(h, h) c = Constant<value = float {{0.5}}>() y = Mul(s, c)
        g = {DOMAIN}.Gradient<xs = ["h"], y = "y">(h)""",
        np.exp(X),
    ),
    "of what does not depend on x": (
        f'y = Mul(z, z) g = {DOMAIN}.Gradient<xs = ["x", "z"], y = "y">(x, z)',
        0 * X,
    ),
    "of x itself": (f'y = Exp(z) g = {DOMAIN}.Gradient<xs = ["x"], y = "x">(x)', 0 * X + 1),
    "of a gradient": (
        f"""h = Mul(x, x) y = Mul(h, x)
        first = {DOMAIN}.Gradient<xs = ["x"], y = "y">(x)
        g = {DOMAIN}.Gradient<xs = ["x"], y = "first">(x)""",
        6 * X,
    ),
    "of a product with a gradient": (
        f"""y = Exp(x)
        first = {DOMAIN}.Gradient<xs = ["x"], y = "y">(x)
        t = Mul(first, x)
        g = {DOMAIN}.Gradient<xs = ["x"], y = "t">(x)""",
        np.exp(X) * (1 + X),
    ),
    "through an optimizer": (
        f"""r = Constant<value = float {{0.5}}>() n = Constant<value = int64 {{1}}>()
        y, v = {DOMAIN}.Momentum<alpha = 0.0, beta = 1.0, norm_coefficient = 0.0, mode = "standard">
            (r, n, z, x, x)
        g = {DOMAIN}.Gradient<xs = ["x"], zs = ["z"], y = "y">(x, z)""",
        0 * X - 0.5,
    ),
    "without the first output": (
        f'y = Mul(x, z) "", g = {DOMAIN}.Gradient<xs = ["x", "z"], y = "y">(x, z)',
        X,
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient(name: str):
    nodes, expected = GRADIENTS[name]
    model = model_of(f"m (float[N] x, float[N] z) => (float[N] g, float[N] y) {{ {nodes} }}")
    for node in model.graph.node:
        node.output[:] = ["" if n == '""' else n for n in node.output]
    np.testing.assert_allclose(run(model, {"x": X, "z": Z})["g"], expected, rtol=1e-6)


def test_training_operators_inside_a_function_are_refused():
    model = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 18, "local" : 1]>
        m (float[N] x, float[N] z) => (float[N] y) {{ y = local.slope(x, z) }}
        <domain: "local", opset_import: ["" : 18, "{DOMAIN}" : 1]>
        slope (a, b) => (g) {{
            s = Mul(a, b)
            g = {DOMAIN}.Gradient<xs = ["a"], zs = ["b"], y = "s">(a, b)
        }}""")
    with pytest.raises(TrainingInfoError, match="inside a subgraph or a function"):
        lower_training_operators(model)


def test_a_model_without_training_operators_stays_as_it_is():
    model = model_of("m (float[N] x) => (float[N] y) { y = Exp(x) }", opset=9)
    assert to_proto(lower_training_operators(model)) == to_proto(load(model))


ERRORS = {
    "y is nothing": (
        f'g = {DOMAIN}.Gradient<xs = ["x"], y = "nothing">(x)',
        "no value is called 'nothing'",
    ),
    "x is nothing": (
        f'g = {DOMAIN}.Gradient<xs = ["w"], y = "x">(x)',
        "must read the tensors that xs and zs name",
    ),
    "y is an integer": (
        f'i = Shape(x) g = {DOMAIN}.Gradient<xs = ["x"], y = "i">(x)',
        "'i' cannot be differentiated; found int64",
    ),
    "an input is missing": (
        f'y = Mul(x, z) g = {DOMAIN}.Gradient<xs = ["x"], zs = ["z"], y = "y">(x)',
        "found inputs x, 1 outputs; expected inputs x, z, and up to 1 outputs",
    ),
    "the input is another value": (
        f'y = Mul(x, x) p = Add(x, z) g = {DOMAIN}.Gradient<xs = ["x"], y = "y">(p)',
        "must read the tensors that xs and zs name; found inputs p",
    ),
    "sets are incomplete": (
        f"r = Constant<value = float {{0.5}}>() n = Constant<value = int64 {{1}}>() "
        f"g, h = {DOMAIN}.Adagrad(r, n, x, z)",
        "found 2 tensors in, 2 out; expected 3 in and 2 out per optimized tensor",
    ),
    "the mode is unknown": (
        f"r = Constant<value = float {{0.5}}>() n = Constant<value = int64 {{1}}>() g, h = "
        f'{DOMAIN}.Momentum<alpha = 0.1, beta = 0.1, norm_coefficient = 0.1, mode = "fast">'
        "(r, n, x, z, z)",
        "unknown mode of Momentum; found 'fast'; expected 'standard' or 'nesterov'",
    ),
    "an attribute is missing": (
        f"r = Constant<value = float {{0.5}}>() n = Constant<value = int64 {{1}}>() g, h = "
        f'{DOMAIN}.Momentum<alpha = 0.1, mode = "standard">(r, n, x, z, z)',
        "attribute 'beta' is missing",
    ),
    "gradients of each other": (
        f'g = {DOMAIN}.Gradient<xs = ["x"], y = "h">(x) '
        f'h = {DOMAIN}.Gradient<xs = ["x"], y = "g">(x)',
        "a Gradient differentiates what depends on itself",
    ),
    "an unknown operator": (f"g = {DOMAIN}.Lamb(x)", "unknown training operator"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_wrong_use_is_an_error_in_one_line(name: str):
    nodes, message = ERRORS[name]
    model = model_of(f"m (float[N] x, float[N] z) => (float[N] g) {{ {nodes} }}")
    with pytest.raises((TrainingInfoError, GraphError)) as caught:
        lower_training_operators(model)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_computes_an_independent_tensor_needs_no_gradient():
    model = model_of(f"""
        m (float[N] x) => (float[N] g) <float[N] h> {{
            h = local.Strange(x)
            y = Mul(h, h)
            g = {DOMAIN}.Gradient<xs = ["h"], y = "y">(h)
        }}""")
    model.opset_import.add(domain="local", version=1)
    lowered = lower_training_operators(model)
    assert [node.domain for node in lowered.graph].count("local") == 1
    onnx.checker.check_model(to_proto(lowered))


def test_an_operator_without_a_gradient_is_named():
    model = model_of(f"""
        m (float[N] x) => (float[N] g, float[N] y) {{
            y = local.Strange(x)
            g = {DOMAIN}.Gradient<xs = ["x"], y = "y">(x)
        }}""")
    model.opset_import.add(domain="local", version=1)
    with pytest.raises(GradientError, match=r"local::Strange"):
        lower_training_operators(model)


def test_what_is_computed_has_its_type_whatever_the_file_declares():
    source = model_of("""g (double[3] x, double[3] w) => (double[3] twice)
    <float[3] dw> {
        p = Mul(x, w)
        loss = ReduceSum<keepdims=0>(p)
        dw = ai.onnx.preview.training.Gradient<xs=["w"], y="loss">(w)
        twice = Add(dw, dw)
    }""")
    graph = lower_training_operators(source).graph
    (dw,) = [v for node in graph for v in node.outputs if v.name == "dw"]
    assert dw.dtype == ir.DataType.DOUBLE
