"""TensorRT as a judge: what it takes, what it refuses, and why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest
import tensorrt_judge

pytestmark = pytest.mark.tensorrt

ROOT = Path(__file__).parents[2]


def model(body: str, type_: str = "float16", length: str = "4") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 22]>'
        f" g ({type_}[1,3,{length}] x) => ({type_}[1,3,{length}] y) {{ y = {body} }}"
    )


@pytest.mark.parametrize(
    ("body", "type_", "error"),
    [
        ("Mish(x)", "float16", ""),
        ("Mish(x)", "bfloat16", "Only FLOAT32 or FLOAT16 input is supported for the Mish operator"),
        ("Celu(x)", "float", ""),
        ("Celu(x)", "float16", "rank of operands should be the same"),
        ("Add(x, x)", "bfloat16", ""),
    ],
)
def test_types_decide_what_is_parsed(
    tensorrt: tensorrt_judge.Judge, body: str, type_: str, error: str
) -> None:
    found = tensorrt.judge(model(body, type_).SerializeToString())
    assert found.parsed is (error == "")
    assert error in found.error


@pytest.mark.parametrize("length", ["4", "N"])
def test_an_engine_is_built(tensorrt: tensorrt_judge.Judge, length: str) -> None:
    found = tensorrt.judge(model("Relu(x)", length=length).SerializeToString(), build=True)
    assert found == tensorrt_judge.Verdict(parsed=True, built=True)


def test_the_command_line_says_what_became_of_each_model(
    tensorrt: tensorrt_judge.Judge, tmp_path: Path
) -> None:
    for name in ("Mish", "Relu"):
        onnx.save(model(f"{name}(x)", "bfloat16"), tmp_path / f"{name}.onnx")
    paths = [str(tmp_path / f"{name}.onnx") for name in ("Mish", "Relu")]
    command = [sys.executable, str(ROOT / "tools" / "tensorrt" / "tensorrt_judge.py"), "--build"]
    done = subprocess.run([*command, *paths], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["model"], row["parsed"], row["built"]) for row in lines] == [
        (paths[0], False, None),
        (paths[1], True, True),
    ]
    assert tensorrt.version.split(".")[0].isdigit()
