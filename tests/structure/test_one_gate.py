"""ONNX Runtime is reached through one room, and shapes are inferred behind one gate."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

import amp_rewrite

PACKAGE = Path(amp_rewrite.__file__).parent
GATE = PACKAGE / "runtimes" / "ort"
OUTSIDE = sorted(p for p in PACKAGE.rglob("*.py") if GATE not in p.parents)


def names_brought_in(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that are imported, and every string that a call is given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            values = [a.value for a in node.args if isinstance(a, ast.Constant)]
            yield from (v for v in values if isinstance(v, str) and v.isidentifier())


def touches_the_runtime(text: str) -> bool:
    loaders = (
        "amp_rewrite.runtimes.ort.runtime.import_runtime",
        "amp_rewrite.runtimes.ort.runtime.import_state",
    )
    if not any(word in text for word in ("onnxruntime", "import_runtime", "import_state")):
        return False
    names = list(names_brought_in(ast.parse(text)))
    return any(n.partition(".")[0] == "onnxruntime" or n in loaders for n in names)


def test_only_the_gate_imports_onnx_runtime():
    assert OUTSIDE
    assert [str(p) for p in OUTSIDE if touches_the_runtime(p.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "text",
    [
        "import onnxruntime",
        "import onnxruntime.capi as c",
        "def f():\n    from onnxruntime import OrtValue",
        "importlib.import_module('onnxruntime')",
        "from amp_rewrite.runtimes.ort.runtime import import_runtime",
    ],
)
def test_every_way_to_import_it_is_seen(text: str):
    assert touches_the_runtime(text)


INFERENCE = {"infer_shapes", "infer_shapes_path", "infer_node_outputs", "ShapeInferencePass"}
"""What infers shapes in onnx and onnx_ir."""

MAY_INFER = {
    "graph/proto/shape_inference.py": "the gate",
    "graph/proto/infer_in_place.py": "the gate for models of onnx_ir",
    "grad/builder/annotate.py": "one node",
}


def infers_shapes(text: str) -> bool:
    if not any(name in text for name in INFERENCE):
        return False
    nodes = list(ast.walk(ast.parse(text)))
    return any(isinstance(n, ast.Attribute) and n.attr in INFERENCE for n in nodes) or any(
        (n.module or "").startswith("onnx") and INFERENCE & {alias.name for alias in n.names}
        for n in nodes
        if isinstance(n, ast.ImportFrom)
    )


def test_shapes_are_inferred_behind_one_gate():
    """An operator may end the process there: the gate keeps it away."""
    asking = [path for path in PACKAGE.rglob("*.py") if infers_shapes(path.read_text("utf-8"))]
    assert {path.relative_to(PACKAGE).as_posix() for path in asking} == set(MAY_INFER)


WITHOUT = """
import sys
sys.modules["onnxruntime"] = None
import amp_rewrite as amp
model = amp.load(sys.argv[1])
result = amp.rewrite(model)
assert any(node.op_type == "Cast" for node in result.model.graph), result.report
amp.save(result.model, sys.argv[2])
loss = amp.value(model, "y")
amp.save(amp.build_step(amp.optimizers.GradientDescent(0.1).minimize(loss)), sys.argv[2])
"""


def test_loading_rewriting_and_building_a_step_need_no_runtime(tmp_path: Path):
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>'
        "g (float[2,2] x) => (float y) <float[2,2] w = {1, 2, 3, 4}>"
        "{ h = MatMul(x, w) y = ReduceSum<keepdims: int = 0>(h) }"
    )
    onnx.save(model, tmp_path / "m.onnx")
    paths = [str(tmp_path / name) for name in ("m.onnx", "out.onnx")]
    done = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path(paths[1]).exists()
