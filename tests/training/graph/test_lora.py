"""Low-rank adapters: which weights get them, what they compute, and what is trained."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import amp_rewrite as amp
from amp_rewrite.dtypes import FLOAT32
from amp_rewrite.errors import OptionError
from amp_rewrite.optimizers import Adam, GradientDescent

RANDOM = np.random.default_rng(7)
WEIGHTS = {
    "layer.q_proj.weight": RANDOM.normal(size=(4, 6)).astype(np.float32),
    "layer.v_proj.weight": RANDOM.normal(size=(6, 6)).astype(np.float32),
    "layer.bias": RANDOM.normal(size=6).astype(np.float32),
    "head.weight": RANDOM.normal(size=(6, 3)).astype(np.float32),
}
X = RANDOM.normal(size=(5, 4)).astype(np.float32)
FEEDS = {"x": X}

CHAIN = """
    q = MatMul(x, "layer.q_proj.weight")
    h = Add(q, "layer.bias")
    a = Tanh(h)
    transposed = Transpose<perm = [1, 0]>("layer.v_proj.weight")
    v = MatMul(a, transposed)
    y = Gemm<alpha = 0.5>(v, "head.weight")
"""


def model_of(body: str, weights: dict[str, Any], inputs: str = "float[n, 4] x") -> ir.Model:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g ({inputs}) => (float loss) {{
        {body}
        s = Mul(y, y)
        loss = ReduceMean<keepdims = 0>(s)
    }}"""
    proto = onnx.parser.parse_model(text)
    for name, array in weights.items():
        proto.graph.initializer.append(ir.to_proto(ir.tensor(array, name=name)))
    return amp.load(proto)


def network() -> ir.Model:
    return model_of(CHAIN, WEIGHTS)


def session_of(model: ir.Model, optimizer: Any = None, **arguments: Any) -> amp.TrainingSession:
    optimizer = GradientDescent(0.1) if optimizer is None else optimizer
    return amp.TrainingSession(optimizer.minimize(amp.value(model, "loss")), **arguments)


def result(model: ir.Model, value: str = "loss", feeds: Any = None) -> Any:
    """Return a value of a model, computed by an inference session of the runtime."""
    import onnxruntime

    proto = amp.to_proto(model)
    proto.graph.output.append(onnx.helper.make_empty_tensor_value_info(value))
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return session.run([value], FEEDS if feeds is None else feeds)[0]


def filled(session: amp.TrainingSession) -> dict[str, np.ndarray]:
    """Give every B numbers, and return the states."""
    random = np.random.default_rng(3)
    states = session.state_dict()
    for name, array in states.items():
        if name.endswith("lora_B"):
            session.assign_state(name, random.normal(size=array.shape).astype(array.dtype))
    return session.state_dict()


def test_only_adapters_are_trained_and_the_first_step_is_that_of_the_base() -> None:
    base = session_of(network()).evaluate(FEEDS)["loss"]
    model = network()
    assert amp.lora(model, "*.q_proj|*.v_proj", rank=2, alpha=4) == ["layer.q_proj", "layer.v_proj"]
    assert set(amp.frozen(model)) == set(WEIGHTS)
    with session_of(model) as session:
        adapters = {s.name: s.shape for s in session.info.states if s.role == "adapter"}
        assert adapters == {
            "layer.q_proj.lora_A": (4, 2),
            "layer.q_proj.lora_B": (2, 6),
            "layer.v_proj.lora_A": (6, 2),
            "layer.v_proj.lora_B": (2, 6),
        }
        assert session.evaluate(FEEDS)["loss"] == base
        assert session.run(FEEDS)["loss"] == base
        after = [session.run(FEEDS)["loss"] for _ in range(20)]
        assert after[-1] < after[0] < base
        exported = session.export()
    for name in ("layer.bias", "head.weight"):
        tensor = exported.graph.initializers[name].const_value
        np.testing.assert_array_equal(tensor.numpy(), WEIGHTS[name])


def test_gradients_are_those_of_hand_computation() -> None:
    model = network()
    amp.lora(model, "head", rank=2, alpha=3)
    with session_of(model, GradientDescent(1.0)) as session:
        before = filled(session)
        session.run(FEEDS)
        after = session.state_dict()
    wide = {name: w.astype(np.float64) for name, w in (WEIGHTS | before).items()}
    hidden = np.tanh(X @ wide["layer.q_proj.weight"] + wide["layer.bias"])
    hidden = hidden @ wide["layer.v_proj.weight"].T
    a, b = wide["head.lora_A"], wide["head.lora_B"]
    scale = 0.5 * 3 / 2  # alpha of the Gemm, alpha / rank of the adapter
    y = 0.5 * hidden @ wide["head.weight"] + scale * hidden @ a @ b
    arriving = 2 * y / y.size
    expected = {
        "head.lora_A": a - scale * hidden.T @ arriving @ b.T,
        "head.lora_B": b - scale * (hidden @ a).T @ arriving,
    }
    for name, array in expected.items():
        np.testing.assert_allclose(after[name], array, rtol=1e-5, atol=1e-6)


# (nodes, weight, its shape, inputs, feeds)
FORMS = {
    "MatMul": ("y = MatMul(x, w)", (4, 6), "float[n, 4] x", X),
    "of three axes": ("y = MatMul(x, w)", (4, 6), "float[n, 1, 4] x", X[:, None]),
    "a vector": ("y = MatMul(x, w)", (4, 6), "float[4] x", X[0]),
    "behind Transpose": ("t = Transpose(w) y = MatMul(x, t)", (6, 4), "float[n, 4] x", X),
    "behind two": (
        "i = Identity(w) t = Transpose<perm = [1, 0]>(i) u = Transpose(t) y = MatMul(x, u)",
        (4, 6), "float[n, 4] x", X,
    ),
    "Gemm": ("y = Gemm<alpha = 0.5, beta = 2.0>(x, w, c)", (4, 6), "float[n, 4] x", X),
    "Gemm transB": ("y = Gemm<transB = 1>(x, w)", (6, 4), "float[n, 4] x", X),
    "Gemm transA": ("y = Gemm<transA = 1>(x, w)", (5, 6), "float[5, n] x", X),
    "in both directions": (
        "k = MatMul(x, w) r = Tanh(k) t = Transpose(w) y = MatMul(r, t)",
        (4, 6), "float[n, 4] x", X,
    ),
    "in a branch": (
        "yes = Equal(n, n) y = If(yes) <then_branch = g () => (float[n, 6] z) {"
        "z = MatMul(x, w)}, else_branch = g () => (float[n, 6] o) {o = MatMul(x, w)}>",
        (4, 6), "float[n, 4] x", X,
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_merged_model_computes_what_the_adapted_one_does(form: str) -> None:
    body, shape, inputs, x = FORMS[form]
    weights = {"w": RANDOM.normal(size=shape).astype(np.float32)}
    weights |= {"c": np.ones(6, np.float32), "n": np.array(1, np.int64)}
    model = model_of(body, {k: v for k, v in weights.items() if k in re.split(r"\W", body)}, inputs)
    assert amp.lora(model, "w", rank=3, alpha=1) == ["w"]
    feeds = {"x": x}
    with session_of(model) as session:
        filled(session)
        adapted = session.evaluate(feeds, "y")["y"]
        merged = session.export()
        assert not np.array_equal(merged.graph.initializers["w"].const_value.numpy(), weights["w"])
        np.testing.assert_allclose(result(merged, "y", feeds), adapted, rtol=1e-5, atol=1e-5)
        assert session.run(feeds)["loss"] > session.run(feeds)["loss"]


def test_a_weight_that_is_a_table_as_well_gets_no_adapter() -> None:
    body = "e = Gather(w, ids) t = Transpose(w) z = MatMul(e, t) y = MatMul(z, v)"
    arrays = {
        name: RANDOM.normal(size=(7, k)).astype(np.float32) for name, k in (("w", 4), ("v", 3))
    }
    model = model_of(body, arrays, "int64[n] ids")
    assert amp.lora(model) == ["v"]
    with pytest.raises(OptionError, match="no weight that MatMul or Gemm alone read; found 'w'"):
        amp.lora(model_of(body, arrays, "int64[n] ids"), "w")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_base_may_be_stored_in_a_low_type(dtype: str) -> None:
    kind = ir.DataType[dtype.upper()]
    low = WEIGHTS["layer.q_proj.weight"].astype(kind.numpy())
    model = model_of("c = Cast<to = 1>(w) y = MatMul(x, c)", {"w": low})
    amp.lora(model, "w", rank=2)
    with session_of(model) as session:
        assert session.state_dict()["w.lora_A"].dtype == np.float32
        expected = X @ low.astype(np.float32)
        found = session.evaluate(FEEDS, "y")["y"]
        np.testing.assert_allclose(found, expected, FLOAT32.rtol, FLOAT32.atol)
        filled(session)
        adapted = session.evaluate(FEEDS, "y")["y"]
        merged = session.export().graph.initializers["w"].const_value
    assert merged.dtype is kind
    step = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
    changed = merged.numpy().astype(np.float32)
    bound = step * np.abs(X) @ np.abs(changed) + 1e-5
    assert (np.abs(X @ changed - adapted) <= bound).all()


def named_by_nodes() -> ir.Model:
    proto = amp.to_proto(network())
    names = {w: f"onnx::MatMul_{i}" for i, w in enumerate(WEIGHTS)}
    for tensor in proto.graph.initializer:
        tensor.name = names[tensor.name]
    for node in proto.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        if node.op_type == "MatMul":
            node.name = {"q": "/layer/q_proj/MatMul", "v": "/layer/v_proj/MatMul"}[node.output[0]]
    return amp.load(proto)


def test_nodes_may_carry_the_names() -> None:
    model = named_by_nodes()
    assert amp.lora(model, "*.q_proj|*.v_proj", rank=2) == ["layer.q_proj", "layer.v_proj"]
    with session_of(model) as session:
        assert "layer.q_proj.lora_A" in session.info.names


@pytest.mark.parametrize(
    "choice",
    [
        "layer.q_proj.weight",
        re.compile(r"q_proj"),
        ["*.q_proj"],
        lambda variable: variable.shape == (4, 6),
    ],
)
def test_weights_are_chosen_in_several_ways(choice: Any) -> None:
    assert amp.lora(network(), choice) == ["layer.q_proj"]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("*.k_proj", r"found '\*.k_proj'; expected .*q_proj"),
        ("*.q_proj|layer.bias", "found 'layer.bias'"),
        ([], "found"),
        (3, "not a choice of weights.*found an object of type int"),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error(choice: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        amp.lora(network(), choice)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0}, "impossible rank"),
        ({"alpha": 0.0}, "impossible alpha"),
        ({"dropout": 1.0}, "impossible dropout"),
        ({"dropout": 1.5}, "impossible dropout"),
        ({"seed": -1}, "impossible seed"),
    ],
)
def test_an_impossible_argument_is_refused(arguments: Any, message: str) -> None:
    model = network()
    with pytest.raises(OptionError, match=message):
        amp.lora(model, "*.q_proj", **arguments)
    assert amp.frozen(model) == []


def test_a_weight_is_adapted_once_and_before_gradients() -> None:
    model = network()
    amp.lora(model, "*.q_proj")
    with pytest.raises(OptionError, match=r"q_proj.weight.* has an adapter already"):
        amp.lora(model, "*_proj")
    assert amp.lora(model, "head", rank=1) == ["head"]
    session_of(model).close()
    with pytest.raises(OptionError, match="gradients have been computed"):
        amp.lora(model, "*.v_proj")


@pytest.mark.parametrize("used", [True, False])
def test_values_that_were_taken_before_are_those_of_the_adapted_model(used: bool) -> None:
    model = network()
    q = amp.value(model, "q")
    loss = q.mean() if used else None
    amp.lora(model, "*.q_proj", rank=2)
    op = GradientDescent(0.1).minimize(q.mean() if loss is None else loss)
    assert set(op.updates) == {"layer.q_proj.lora_A", "layer.q_proj.lora_B", "global_step"}


def test_a_head_may_be_trained_as_well_and_one_factor_frozen() -> None:
    model = network()
    amp.unfreeze(model, "layer.bias")
    amp.lora(model, "*.q_proj", rank=2)
    amp.unfreeze(model, "head.weight")
    amp.freeze(model, "*.lora_A")
    with session_of(model) as session:
        before = filled(session)
        session.run(FEEDS)
        after = session.state_dict()
        changed = {name for name in after if not np.array_equal(after[name], before[name])}
        assert changed == {"layer.bias", "head.weight", "layer.q_proj.lora_B", "global_step"}
        adapted = session.evaluate(FEEDS, "y")["y"]
        merged = session.export()
    np.testing.assert_allclose(result(merged, "y"), adapted, rtol=1e-5, atol=1e-5)


def test_dropout_is_that_of_the_adapter_alone() -> None:
    model = network()
    amp.lora(model, "*.q_proj", rank=2, dropout=0.5)
    with session_of(model) as session:
        base = session.evaluate(FEEDS)["loss"]
        assert session.run(FEEDS)["loss"] == base  # B is zero
        filled(session)
        assert session.evaluate(FEEDS)["loss"] == session.evaluate(FEEDS)["loss"]
        first = session.run(FEEDS, ["h"])["h"]
        assert not np.allclose(first, session.evaluate(FEEDS, "h")["h"])


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_adapters_are_trained_in_low_precision(precision: str) -> None:
    model = network()
    amp.lora(model, "*.q_proj|*.v_proj", rank=2)
    optimizer: Any = Adam(0.01)
    if precision == "float16":
        optimizer = amp.LossScaleOptimizer(optimizer, "dynamic")
    with session_of(model, optimizer, precision=precision, emulate=True) as session:
        losses = [float(session.run(FEEDS)["loss"]) for _ in range(20)]
        assert session.state_dict()["layer.q_proj.lora_A"].dtype == np.float32
    assert losses[-1] < 0.7 * losses[0]


def test_a_step_file_knows_its_adapters(tmp_path: Any) -> None:
    model = network()
    amp.lora(model, "*.q_proj|*.v_proj", rank=2)
    step = amp.build_step(GradientDescent(0.1).minimize(amp.value(model, "loss")), "y")
    amp.save(step, tmp_path / "step.onnx")
    with amp.TrainingSession(tmp_path / "step.onnx") as session:
        filled(session)
        adapted = session.evaluate(FEEDS, "y")["y"]
        np.testing.assert_allclose(result(session.export(), "y"), adapted, rtol=1e-5, atol=1e-5)
