"""One rewrite, whichever way a model comes and goes: as a file or as an object.

What is saved at once, what is made an object and saved then, and what is rewritten from an object
read the same, and their reports say the same.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from decorations import add_note, decorate, graphs_of
from onnx import TensorProto, helper, numpy_helper
from rewrite_text import lists_of, parse

import amp_rewrite as amp
from amp_rewrite.graph.metadata_keys import STEP_KEY
from amp_rewrite.optimizers import Momentum


def content(folder: Path) -> tuple[dict[str, bytes], bytes]:
    """Return the data files beside a model, and what reading the model gives."""
    data = {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix != ".onnx"}
    return data, amp.to_proto(amp.load(folder / "m.onnx")).SerializeToString(deterministic=True)


def assert_same_files(
    source: Path, folder: Path, *, objects: bool = True, **options: Any
) -> amp.RewriteResult:
    """Rewrite a file, and the object that is made of it, and compare everything that is written."""
    options.setdefault("target", "schema")
    options.setdefault("lists", lists_of(options.setdefault("precision", "float16")))
    result, loaded = amp.rewrite(source, **options), amp.load(source)
    results = [result]
    if objects:
        results.append(amp.rewrite(loaded, **options))
    written = list[tuple[dict[str, bytes], bytes]]()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for one in results:
            for save in (one.save, lambda path, one=one: amp.save(one.model, path)):
                target = Path(name, str(len(written)))
                target.mkdir()
                save(target / "m.onnx")
                written.append(content(target))
    assert all(found == written[0] for found in written)
    assert all(one.report == result.report for one in results)
    return result


def assert_same(model: onnx.ModelProto, **options: Any) -> amp.RewriteResult:
    """Write a model to a file, and rewrite that each way."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in.onnx")
        source.write_bytes(model.SerializeToString())
        return assert_same_files(source, Path(folder), **options)


W = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}"
NEXT = "float[4,4] v = {1,0,0,2,0,1,0,2,0,0,1,2,0,0,0,2}"
DENSE = "Constant<value = float[4,4] {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>()"

TEXTS = {
    "empty": "g (float[2,4] x) => (float[2,4] x) {}",
    "nothing to convert": "g (float[2,4] x) => (float[2,4] y) { y = Exp(x) }",
    "an initializer as output": f"g (float[2,4] x) => (float[2,4] y, float[4,4] w) <{W}> {{"
    " y = MatMul(x, w) }",
    "an output twice, and read": f"g (float[2,4] x) => (float[2,4] y, float[2,4] y, float[2,4] z)"
    f" <{W}> {{ y = MatMul(x, w) z = Exp(y) }}",
    "an output of one type, read in another": "g (float[2,4] x) => (float[2,4] y, float[2,4] z)"
    f" <{W}> {{ y = Exp(x) z = MatMul(y, w) }}",
    "an output without a type": f"g (float[2,4] x) => (y) <{W}> {{ y = MatMul(x, w) }}",
    "a constant in both types": f"g (float[2,4] x) => (float[2,4] y, float[4,4] z) <{W}> {{"
    " y = MatMul(x, w) z = Exp(w) }",
    "a Constant in both types": "g (float[2,4] x) => (float[2,4] y, float[4,4] z) {"
    f" w = {DENSE} y = MatMul(x, w) z = Exp(w) }}",
    "a Constant as output, in both types": "g (float[2,4] x) => (float[2,4] y, float[4,4] w) {"
    f" w = {DENSE} y = MatMul(x, w) }}",
    "numbers": "g (float[4,4] x) => (float[4] y, float[4,4] z, float[4] e) {"
    " a = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>() b = Constant<value_float = 2.5>()"
    " i = Constant<value_int = 3>() y = MatMul(x, a) z = Mul(x, b) e = Exp(a) }",
    "casts behind one node": f"g (float[2,4] x) => (float[2,2] p, float[2,2] q, float[2,4] z)"
    f" <{W}> {{ h = MatMul(x, w) a, b = Split<axis = 1, num_outputs = 2>(h)"
    " p = Exp(a) q = Exp(b) c = Concat<axis = 1>(p, q) d = Concat<axis = 1>(a, b)"
    " e = Add(c, d) z = MatMul(e, w) }",
    "casts at the start": f"g (float[2,4] x, float[2,4] u) => (float[2,4] y, float[2,4] z)"
    f" <{W}> {{ e = Exp(x) f = Exp(u) a = MatMul(u, w) b = MatMul(x, w) y = Add(a, b)"
    " z = Add(e, f) }",
    "a Cast that becomes nothing, cast back": "g (float[2,4] x) => (float[2,4] y, float[2,4] z)"
    f" <{W}> {{ h = MatMul(x, w) a = Cast<to = 1>(h) z = Exp(a) y = MatMul(a, w) }}",
    "Casts in branches": f"""g (float[2,4] x, bool t) => (float[2,4] y) <{W}> {{
      h = MatMul(x, w) e = Exp(h)
      y = If(t) <
        then_branch = p () => (float[2,4] a) {{
          c = Cast<to = 10>(h) d = Cast<to = 10>(c) f = Cast<to = 1>(d) a = MatMul(f, w) }},
        else_branch = q () => (float[2,4] b) {{
          c = Cast<to = 10>(e) d = Cast<to = 1>(c) m = MatMul(e, w) b = Add(d, m) }}> }}""",
    "Casts of inputs of branches": f"""g (float[2,4] x, int64 n, bool t) => (float[2,4] y) <{W}> {{
      y = Loop(n, t, x) <body = b (int64 i, bool c, float[2,4] v) => (bool d, float[2,4] u) {{
          k = Cast<to = 10>(v) l = Cast<to = 1>(k) m = MatMul(v, w) u = Add(m, l)
          d = Identity(c) }}> }}""",
    "three deep": f"""g (float[2,4] x, int64 n, bool t) => (float[2,4] y, float[N,2,4] z) <{W}> {{
      h = MatMul(x, w) e = Exp(h)
      y, z = Loop(n, t, e) <body = b (int64 i, bool c, float[2,4] s)
          => (bool d, float[2,4] u, float[2,4] r)
          <float[4,4] own = {{1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}}, float[2,4] k> {{
        d = Identity(c)
        u = If(c) <
          then_branch = p () => (float[2,4] a)
              <float[4,4] inner = {{1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}}> {{
            f = Exp(inner) g = MatMul(h, inner) o = MatMul(s, own)
            a, q = Scan(o, f) <num_scan_inputs = 1, body = sc (float[2,4] st, float[4] el)
                => (float[2,4] nx, float[4] ot)
                <float[4,4] last = {{1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}}> {{
              m = MatMul(st, last) l = MatMul(g, w) ml = Add(m, l) nx = Add(ml, el)
              ot = Exp(el) }}> }},
          else_branch = q () => (float[2,4] a2) {{ a2 = MatMul(e, w) }}>
        k = Exp(u)
        r = MatMul(k, own) }}> }}""",
    "outputs of branches": f"""g (float[2,4] x, bool t) => (float[2,4] y, float[2,4] z) <{W}> {{
      h = MatMul(x, w) e = Exp(x)
      y, z = If(t) <
        then_branch = p () => (float[2,4] a, float[2,4] a) {{ a = MatMul(e, w) }},
        else_branch = q () => (float[2,4] b, c) {{ b = Exp(h) c = Identity(b) }}> }}""",
    "typed attributes": f"g (float[2,4] x, int64[1] s) => (float[2,4] y, float[2,4] z) <{W}> {{"
    " h = MatMul(x, w) r = RandomNormalLike(h) y = Add(h, r)"
    " c = ConstantOfShape<value = float[1] {2.0}>(s) o = ConstantOfShape(s)"
    " a = Mul(h, c) z = Mul(a, o) }",
    "no imports": '<ir_version: 8, opset_import: ["com.microsoft": 1]> g (float[2,4] x) =>'
    f" (float[2,4] y) <{W}> {{ y = com.microsoft.FusedMatMul(x, w) }}",
    "an operator of nobody": f"g (float[2,4] x) => (float[2,4] y) <{W}> {{"
    " h = MatMul(x, w) a, , b = custom.Op(h, , w) y = MatMul(a, b) }",
    "bfloat16": "g (bfloat16[2,4] x, float[2,4] f) => (bfloat16[2,4] y, float[2,4] z)"
    f" <{W}> {{ a = Cast<to = 1>(x) m = MatMul(a, w) y = Cast<to = 16>(m)"
    " z = MatMul(f, w) }",
    "strings": "g (float[2,4] x) => (float[2,4] y, string[2] s)"
    f' <{W}, string[2] t = {{"a", "b"}}> {{ y = MatMul(x, w) s = Identity(t) }}',
    "nothing in an initializer": "g (float[0,4] x) => (float[0,4] y, float[0] z)"
    f" <{W}, float[0] n = {{}}> {{ y = MatMul(x, w) z = Exp(n) }}",
    "sequences": f"g (float[2,4] x) => (float[2,4] y, seq(float[2,4]) s) <{W}> {{"
    " i = Constant<value_int = 0>() h = MatMul(x, w) s = SequenceConstruct(h, x)"
    " y = SequenceAt(s, i) }",
}
IDENTITY = "1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1"
CALLS = f"""<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[2,4] x, bool t) => (float[2,4] y) <{W}> {{
      h = MatMul(x, w) e = local.F<alpha = 2.0>(h, t) y = MatMul(e, w) }}
    <domain: "local", opset_import: ["" : 21]>
    F <alpha: float = 1.0, beta> (a, t) => (b) {{
      k = Constant<value_float: float = @alpha>()
      m = Constant<value = float[4,4] {{{IDENTITY}}}>()
      c = Mul(a, k)
      b = If(t) <
        then_branch = p () => (float[2,4] r) <float[4,4] v = {{{IDENTITY}}}> {{
          d = MatMul(c, v) r = MatMul(d, m) }},
        else_branch = q () => (s) {{ s = Exp(c) }}> }}"""

OPTIONS: list[dict[str, Any]] = [
    {},
    {"keep_io_types": False},
    {"weights": "cast"},
    {"precision": "bfloat16", "keep_io_types": False},
]


def check(model: onnx.ModelProto, seed: int = 0) -> None:
    """Rewrite a model under one of the options, and a decorated one under another."""
    assert_same(model, **OPTIONS[seed % 4])
    # an object has one declaration of a value, and a decorated file several
    assert_same(decorate(model, seed), objects=False, **OPTIONS[(seed + 1) % 4])


STEP = f"""g (float[8,4] x, float[8,4] t) => (float loss) <{W}, float[4] b = {{1, 2, 3, 4}}> {{
      h = MatMul(x, w) y = Add(h, b) d = Sub(y, t) s = Mul(d, d)
      loss = ReduceMean<keepdims = 0>(s) }}"""


@pytest.mark.share(5)
@pytest.mark.parametrize("name", TEXTS)
def test_handmade_models(name: str) -> None:
    check(parse(TEXTS[name]), seed=list(TEXTS).index(name))


def calls() -> onnx.ModelProto:
    """Return a model with a function that holds all that functions can."""
    model = parse(CALLS)
    function = model.functions[0]
    function.doc_string = "function"
    add_note(function, "key", "function")
    for name in ("c", "nothing", "a"):
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", -1])
        function.value_info.append(info)
    model.opset_import[0].domain = "ai.onnx"
    return model


@pytest.mark.parametrize("inline_functions", [True, False])
def test_functions(inline_functions: bool) -> None:
    for seed, options in enumerate(OPTIONS):
        assert_same(
            decorate(calls(), seed), objects=False, inline_functions=inline_functions, **options
        )


def test_initializers_that_are_inputs() -> None:
    graph = f"g (float[2,4] x) => (float[2,4] y, float[4,4] z) <{W}, {NEXT}> {{"
    graph += " h = MatMul(x, w) y = MatMul(h, v) z = Exp(v) }"
    for version, opset in ((3, 8), (10, 21)):
        model = parse(f'<ir_version: {version}, opset_import: ["" : {opset}]> {graph}')
        for name in "wv":
            model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]))
        check(model)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT4])
def test_long_constants_that_stay_are_not_copied_and_come_back(kind: int) -> None:
    table = np.arange(1 << 14).reshape(-1, 4) % 7
    numpy = helper.tensor_dtype_to_np_dtype(kind)
    proto = numpy_helper.from_array(table.astype(numpy), "t")
    made = parse(
        f"g (float[2,4] x) => (float[2,4] y, float[4096,4] z) <{W}> {{"
        " y = MatMul(x, w) z = Cast<to = 1>(t) }"
    )
    made.opset_import[0].version = 21
    made.graph.initializer.append(proto)
    result = assert_same(made)
    [kept] = [t for t in result.rewritten.tensors.values() if t.proto.name == "t"]
    assert not kept.proto.HasField("raw_data")
    assert np.array_equal(kept.numpy().astype(np.int64), table)


def test_a_training_step() -> None:
    optimizer = Momentum(0.5, 0.9)
    step = amp.build_step(optimizer.minimize(amp.value(amp.load(parse(STEP)), "loss")))
    model = amp.to_proto(step)
    assert STEP_KEY in {entry.key for entry in model.metadata_props}
    check(model)


def external(model: onnx.ModelProto, folder: Path) -> Path:
    """Write a model whose float32 initializers, at any depth, lie in two files; return its path."""
    contents = {"a.data": b"head", "b.data": b""}
    for count, tensor in enumerate(t for g in graphs_of(model.graph) for t in g.initializer):
        if tensor.data_type == TensorProto.FLOAT:
            _move_out(tensor, "ab"[count % 2] + ".data", contents)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    path = folder / "in.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _move_out(tensor: TensorProto, name: str, contents: dict[str, bytes]) -> None:
    data = numpy_helper.to_array(tensor).tobytes()
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", name), ("offset", len(contents[name])), ("length", len(data))):
        tensor.external_data.add(key=key, value=str(value))
    contents[name] += data


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "name",
    ["three deep", "a constant in both types", "nothing in an initializer", "nothing to convert"],
)
def test_external_data(name: str, tmp_path: Path) -> None:
    model = parse(TEXTS[name])
    large = numpy_helper.from_array(np.arange(1 << 19, dtype=np.float32), "large")
    model.graph.initializer.append(large)
    source = external(model, tmp_path)
    for options in OPTIONS[:2]:
        assert_same_files(source, tmp_path, **options)


def test_external_data_in_an_attribute(tmp_path: Path) -> None:
    model = parse(f"g (float[2,4] x) => (float[2,4] y) {{ w = {DENSE} y = MatMul(x, w) }}")
    contents = {"a.data": b"head"}
    _move_out(model.graph.node[0].attribute[0].t, "a.data", contents)
    (tmp_path / "a.data").write_bytes(contents["a.data"])
    (tmp_path / "in.onnx").write_bytes(model.SerializeToString())
    assert len(assert_same_files(tmp_path / "in.onnx", tmp_path).plan.weights) == 1


def test_an_object_that_no_file_made_is_left_alone_and_its_weights_are_not_copied() -> None:
    shared = ir.tensor(np.eye(4, dtype=np.float32), name="shared")
    x, y = (ir.val(n, ir.DataType.FLOAT, [2, 4]) for n in "xy")
    weights = [ir.val(n, ir.DataType.FLOAT, [4, 4], const_value=shared) for n in "vw"]
    first = ir.node("MatMul", [x, weights[0]])
    exp = ir.node("Exp", first.outputs)
    last = ir.node("MatMul", [exp.outputs[0], weights[1]], outputs=[y])
    graph = ir.Graph([x], [y], nodes=[first, exp, last], initializers=weights, name="g")
    graph.opset_imports[""] = 21
    result = amp.rewrite(
        ir.Model(graph, ir_version=10), lists=lists_of("float16"), deny_nodes=[str(last.name)]
    )
    assert [node.op_type for node in graph] == ["MatMul", "Exp", "MatMul"]
    assert [value.const_value for value in weights] == [shared, shared]
    assert shared.name == "shared"
    low, kept = (result.model.graph.initializers[name].const_value for name in "vw")
    assert low is not None
    assert low.dtype == ir.DataType.FLOAT16
    assert kept is not None
    assert np.shares_memory(kept.numpy(), shared.numpy())
    amp.to_proto(result.model)
    assert shared.name == "shared"
