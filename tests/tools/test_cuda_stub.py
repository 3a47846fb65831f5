"""The CUDA provider, on libraries that compute nothing: rewritten models load and stay fused."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import onnx
import pytest
from group_models import FORMS, model_around

import amp_rewrite as amp
from amp_rewrite.dtypes import Precision

ROOT = Path(__file__).parents[2]
STUB = Path(os.environ.get("AMP_CUDA_STUB", ROOT / "build" / "cuda_stub"))
PYTHON = STUB / "venv" / "bin" / "python"

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(),
    reason=f"there is no CUDA stub in {STUB}; tools/cuda_stub/make_stub.py makes one",
)

PRECISIONS: tuple[Precision, ...] = ("float16", "bfloat16")

NOT_FUSED = {("fast-gelu-power", "bfloat16")}
"""What ONNX Runtime fuses neither in bfloat16 nor behind a Cast to float32."""


def placed(models: dict[str, onnx.ModelProto], folder: Path) -> dict[str, Counter[str]]:
    """Return the operators of each model's optimised graph on the CUDA provider, without Casts."""
    paths = {name: folder / f"{number}.onnx" for number, name in enumerate(models)}
    for name, path in paths.items():
        onnx.save(models[name], path)
    command = [PYTHON, ROOT / "tools" / "cuda_stub" / "place.py", *paths.values()]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(STUB / "lib")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Counter[str]] = {}
    for name, line in zip(models, done.stdout.splitlines(), strict=True):
        said = json.loads(line)
        assert "error" not in said, f"{name}: {said['error']}"
        found[name] = Counter(said["operators"])
        del found[name]["Cast"]
    return found


def rewritten(model: onnx.ModelProto, precision: Precision) -> onnx.ModelProto:
    return amp.to_proto(amp.rewrite(model, precision=precision).model)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_groups_stay_fused(opset: int, tmp_path: Path) -> None:
    models: dict[str, onnx.ModelProto] = {}
    for name, form in FORMS.items():
        models[name] = model_around(form, opset)
        for precision in PRECISIONS:
            models[f"{name} {precision}"] = rewritten(models[name], precision)
    found = placed(models, tmp_path)
    for name, form in FORMS.items():
        assert found[name][form.operator] == 1
        for precision in PRECISIONS:
            if (name, precision) not in NOT_FUSED:
                assert found[f"{name} {precision}"] == found[name], (name, precision)


BEHIND = {
    "residual": "z = Add(h, o)\ny = MatMul(z, w)",
    "float32-residual": "k = Exp(h)\nz = Add(k, o)\ny = MatMul(z, w)",
    "output": "y = Identity(o)",
    "relu": "r = Relu(o)\ny = MatMul(r, w)",
}


@pytest.mark.parametrize("name", ["layer-normalization", "rms-normalization"])
def test_normalizations_stay_fused_whatever_is_around(name: str, tmp_path: Path) -> None:
    models: dict[str, onnx.ModelProto] = {}
    for opset in (13, 17):
        for kind, behind in BEHIND.items():
            model = model_around(FORMS[name], opset, behind)
            models[f"{opset} {kind}"] = model
            for precision in PRECISIONS:
                models[f"{opset} {kind} {precision}"] = rewritten(model, precision)
    found = placed(models, tmp_path)
    operator = FORMS[name].operator
    without = {n for n, operators in found.items() if not any(operator in o for o in operators)}
    assert without == set()
