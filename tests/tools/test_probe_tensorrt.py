"""The kernel table of TensorRT is what TensorRT-RTX takes."""

from __future__ import annotations

import onnx
import probe_tensorrt
import pytest
from kernel_probe import DEFAULT_OUTPUT, choices, of_text, variables_of

from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.kernels.kernel_table import KernelTable
from amp_rewrite.targets import TENSORRT

F16, F32, BF16 = "tensor(float16)", "tensor(float)", "tensor(bfloat16)"


@pytest.mark.parametrize(
    ("op", "types", "taken"),
    [
        ("Conv", {"T": BF16}, True),
        ("Celu", {"T": F16}, False),
        ("HardSwish", {"T": F16}, True),
        ("HardSwish", {"T": BF16}, False),
        ("Mish", {"T": BF16}, False),
        ("LpNormalization", {"T": BF16}, False),
        ("ConvTranspose", {"T": BF16}, False),
        ("BatchNormalization", {"T": F16, "T1": F32, "T2": F32}, True),
        ("Attention", {"T1": F16, "T2": F32}, False),
        ("Gather", {"T": F16, "Tind": "tensor(int32)"}, True),
        ("Cast", {"T1": "tensor(int64)", "T2": F16}, True),
        ("Loop", {"V": F16}, True),
        ("LSTM", {"T": BF16}, True),
        ("LSTM", {"T": F16, "T1": "tensor(int32)"}, False),  # lengths of sequences
        ("LSTM", {"T": F32, "T1": "tensor(int32)"}, True),
        ("NonZero", {"T": F16}, False),
    ],
)
def test_the_table_says_what_the_parser_and_the_builder_take(
    op: str, types: dict[str, str], taken: bool
) -> None:
    assert KernelTable.load(TENSORRT).has_kernel("", op, 24, types) is taken


def test_every_combination_of_types_is_tried() -> None:
    model = of_text(
        "g (float[2,3] x, float[3] s) => (float[2,3] y) { y = LayerNormalization(x, s) }"
    )
    tried = dict(choices(model, variables_of(model)))
    assert list(tried) == [(("T", F32),), (("T", F16),), (("T", BF16),)]
    low = tried[("T", F16),]
    assert {v.type.tensor_type.elem_type for v in low.graph.input} == {FLOAT16.number}
    assert {v.type.tensor_type.elem_type for v in model.graph.input} == {onnx.TensorProto.FLOAT}


@pytest.mark.tensorrt
def test_what_is_refused_once_has_no_kernel(tensorrt) -> None:
    found = probe_tensorrt.probe_of(tensorrt)
    for body in ("Relu(x)", "Celu(x)"):
        found.call(of_text(f"g (float[1,3,4] x) => (float[1,3,4] y) {{ y = {body} }}"))
    taken = {(row["op"], *row["types"]["T"]) for row in found.rows()}
    assert taken == {("Relu", F32), ("Relu", F16), ("Relu", BF16), ("Celu", F32)}


@pytest.mark.tensorrt
@pytest.mark.slow  # 90 s
def test_the_shipped_table_is_that_of_the_installed_version(
    tensorrt, tmp_path, monkeypatch
) -> None:
    version = tensorrt.version
    shipped = DEFAULT_OUTPUT / f"{TENSORRT}_{version}.json"
    if not shipped.exists():
        pytest.skip(f"the table is of another version than {version}")
    monkeypatch.setattr("sys.argv", ["probe_tensorrt.py", "--output", str(tmp_path)])
    probe_tensorrt.main()
    assert (tmp_path / shipped.name).read_text("utf-8") == shipped.read_text("utf-8")
