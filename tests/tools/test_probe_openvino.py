"""The tables of OpenVINO are what OpenVINO takes, and what it computes as one."""

from __future__ import annotations

import pytest
from kernel_probe import Probe, of_text

from amp_rewrite.dtypes import BFLOAT16
from amp_rewrite.kernels.kernel_table import KernelTable
from amp_rewrite.targets import OPENVINO

F32, BF16 = "tensor(float)", "tensor(bfloat16)"


@pytest.mark.parametrize(
    ("domain", "op", "types", "taken"),
    [
        ("", "Conv", {"T": BF16}, True),
        ("", "BatchNormalization", {"T": BF16, "T1": F32, "T2": F32}, False),
        ("", "BatchNormalization", {"T": BF16, "T1": BF16, "T2": BF16}, True),
        ("", "Einsum", {"T": BF16}, False),
        ("", "MaxPool", {"T": BF16, "I": "tensor(int64)"}, False),
        ("", "LSTM", {"T": BF16}, True),
        ("com.microsoft", "BiasGelu", {"T": BF16}, True),
        ("com.microsoft", "QuickGelu", {"T": BF16}, False),
    ],
)
def test_the_table_says_what_loads_and_runs(
    domain: str, op: str, types: dict[str, str], taken: bool
) -> None:
    opset = 1 if domain else 24
    assert KernelTable.load(OPENVINO).has_kernel(domain, op, opset, types) is taken


@pytest.mark.openvino
@pytest.mark.usefixtures("bfloat16_processor")
def test_a_probe_finds_what_is_refused() -> None:
    from probe_openvino import takes

    found = Probe(OPENVINO, takes, (BFLOAT16,))
    for body in ("Relu(x)", "Celu(x)", "com.microsoft.Gelu(x)"):
        found.call(of_text(f"g (float[1,3,4] x) => (float[1,3,4] y) {{ y = {body} }}"))
    taken = {(row["domain"], row["op"], *row["types"]["T"]) for row in found.rows()}
    assert taken == {
        *(("", "Relu", F32), ("", "Relu", BF16), ("", "Celu", F32)),
        *(("com.microsoft", "Gelu", F32), ("com.microsoft", "Gelu", BF16)),
    }


@pytest.mark.openvino
@pytest.mark.usefixtures("measured_processor")
def test_a_probe_finds_what_is_computed_as_one() -> None:
    from probe_rounding import ROWS, is_one, model_of

    weights = {"w": (64, 64), "c": (64,)}
    assert is_one(model_of(ROWS, "a = MatMul(x, w) y = Add(a, c)", **weights))
    assert not is_one(model_of(ROWS, "a = MatMul(x, w) y = Add(a, z)", **weights))
