"""Tables of what kernels add up in."""

import json
from pathlib import Path

import pytest

from amp_rewrite import targets
from amp_rewrite.dtypes import BFLOAT16, FLOAT16, FLOAT32
from amp_rewrite.errors import KernelTableError
from amp_rewrite.kernels import accumulation
from amp_rewrite.kernels.accumulation import (
    SumOrder,
    load,
    operators_adding_in,
    operators_computing_in,
    parse,
)
from amp_rewrite.targets import ARM64, CUDA, WEBGPU

TABLE = {
    "version": 1,
    "runtime": "a runtime",
    "provider": "P",
    "source": "this test",
    "sums": {
        "": {
            "MatMul": [{"type": "float16", "chunk": 4, "when": {"transB": 1}}, {"type": "float16"}],
            "Softmax": [{"type": "float32", "lanes": 2}],
        }
    },
    "steps": {"": {"LeakyRelu": "float16"}},
}


def test_a_table_says_the_type_and_the_order_of_each_operator() -> None:
    table = parse(TABLE, "1.0")
    assert (table.provider, table.version, table.runtime) == ("P", "1.0", "a runtime")
    assert table.sums["", "MatMul"] == (
        SumOrder(FLOAT16, 4, when=(("transB", 1),)),
        SumOrder(FLOAT16),
    )
    assert table.sums["", "Softmax"] == (SumOrder(FLOAT32, lanes=2),)
    assert table.steps == {("", "LeakyRelu"): FLOAT16}
    assert parse({**TABLE, "steps": {}}, "1.0").steps == {}


@pytest.mark.parametrize(
    ("target", "indices", "variances"),
    [
        ("cuda", False, False),
        ("webgpu", True, False),
        ("directml", False, True),
        ("any", True, True),
    ],
)
def test_targets_that_compute_indices_or_variances_low(
    target: str, indices: bool, variances: bool
) -> None:
    found = targets.find(target)
    assert (("", "ConvTranspose") in operators_computing_in(found, FLOAT16, "indices")) == indices
    low = operators_computing_in(found, FLOAT16, "variances")
    assert (("", "LayerNormalization") in low) == variances


def test_webgpu_adds_in_float16_and_cuda_has_no_table() -> None:
    table = load(WEBGPU)
    assert table is not None
    assert table.provider == WEBGPU
    products = {("", "MatMul"), ("", "Conv"), ("", "Gemm")}
    assert products <= operators_adding_in(targets.find("webgpu"), FLOAT16)
    assert not operators_adding_in(targets.find("webgpu"), BFLOAT16)
    assert load(CUDA) is None
    assert load(None) is None
    assert operators_adding_in(targets.find("cuda"), FLOAT16) == frozenset()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "JSONDecodeError"),
        ("{}", "KeyError: 'version'"),
        (json.dumps({**TABLE, "version": 9}), "unknown format of a table of accumulation; found 9"),
        (json.dumps({**TABLE, "sums": {"": {"Conv": [{"type": "half"}]}}}), "KeyError: 'half'"),
        (json.dumps({**TABLE, "sums": {"": {"Conv": [{"chunk": 1}]}}}), "KeyError: 'type'"),
        (json.dumps({**TABLE, "sums": []}), "AttributeError"),
    ],
)
def test_a_broken_table_is_refused(
    text: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "accumulation_P_1.0.json").write_text(text, "utf-8")
    monkeypatch.setattr(targets, "DATA", tmp_path)
    accumulation.load.cache_clear()
    with pytest.raises(KernelTableError, match=found):
        load("P")


def test_on_arm_a_product_and_its_sum_are_rounded_once() -> None:
    table = load(ARM64)
    assert table is not None
    for op in ("MatMul", "Conv", "Gemm"):
        assert all(row.fused and row.type is FLOAT16 for row in table.sums["", op])
    assert table.sums["", "GlobalAveragePool"] == (SumOrder(FLOAT16),)
    assert ("", "ReduceMean") not in operators_adding_in(targets.find(ARM64), FLOAT16)
