"""From rows that a runtime registers to a kernel table."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import kernel_rows
import pytest

from amp_rewrite.errors import KernelTableError
from amp_rewrite.kernels import kernel_table as kernels
from amp_rewrite.targets import ARM64

F16, F32, BF16 = "tensor(float16)", "tensor(float)", "tensor(bfloat16)"


def test_merging_rows_keeps_exactly_the_combinations_that_exist() -> None:
    rows = [
        (1, None, {"T": (a,), "U": (b,)})
        for a, b in [(F32, F32), (F32, F16), (F16, F16), (BF16, BF16), (BF16, F32)]
    ]
    merged = kernel_rows.merge(rows)
    combinations = {pair for _, _, t in merged for pair in itertools.product(t["T"], t["U"])}
    assert combinations == {(r[2]["T"][0], r[2]["U"][0]) for r in rows}
    assert len(merged) < len(rows)


def test_the_installed_runtime_can_be_asked() -> None:
    pytest.importorskip("onnxruntime")
    answer = kernel_rows.ask_runtime()
    assert any(k["op"] == "MatMul" and F32 in k["types"]["T"] for k in answer["kernels"])


def test_a_runtime_that_dies_when_asked_is_one_line(tmp_path: Path) -> None:
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -SEGV $$\n")
    dying.chmod(0o755)
    with pytest.raises(KernelTableError, match=r"killed by signal 11; expected a runtime with"):
        kernel_rows.ask_runtime(python=str(dying))


def test_rows_of_variables_that_must_agree_are_split_by_type() -> None:
    row = {
        "provider": "WebGpuExecutionProvider",
        "domain": "",
        "op": "BatchNormalization",
        "since": 15,
        "until": None,
        "types": {"T": [F32, F16]},
    }
    assert [part["types"] for part in kernel_rows.split_agreeing(row)] == [
        {"T": [F32], "T1": [F32], "T2": [F32]},
        {"T": [F16], "T1": [F16], "T2": [F16]},
    ]
    other = {**row, "op": "Relu"}
    assert list(kernel_rows.split_agreeing(other)) == [other]


def test_a_table_of_the_installed_runtime_reads_back() -> None:
    pytest.importorskip("onnxruntime")
    answer = kernel_rows.ask_runtime()
    made = kernels.parse(kernel_rows.table_for(answer, "CPUExecutionProvider"))
    assert made.has_kernel("", "MatMul", 13, {"T": F32})
    assert made.version == answer["runtime"].split()[-1]


def test_a_provider_without_kernels_is_named_with_those_that_have_some() -> None:
    answer = {"runtime": "r 1", "source": "s", "kernels": [{"provider": "P"}]}
    with pytest.raises(KernelTableError, match=r"Q: the runtime has no kernels .* expected P;"):
        kernel_rows.table_for(answer, "Q")


def test_what_arm_does_not_load_in_float16_has_no_row() -> None:
    def pool(op: str, since: int, until: int | None, *types: str) -> dict[str, Any]:
        kinds = {"T": list(types)}
        named = {"provider": ARM64, "domain": "", "op": op, "since": since, "until": until}
        return {**named, "types": kinds}

    rows = [
        pool("MaxPool", 8, 11, F16),
        pool("MaxPool", 8, 11, F32),
        pool("MaxPool", 12, 21, F16, F32),
        pool("AveragePool", 11, 18, F16),
        pool("AveragePool", 19, 21, F16, F32),
    ]
    answer = {"runtime": "onnxruntime 9", "source": "this test", "kernels": rows}
    made = kernel_rows.table_for(answer, ARM64)
    table = kernels.parse(json.loads(kernel_rows.to_text(made)))
    low = {opset: table.has_kernel("", "MaxPool", opset, {"T": F16}) for opset in (10, 11, 12, 17)}
    assert low == {10: False, 11: False, 12: True, 17: True}
    assert table.has_kernel("", "MaxPool", 10, {"T": F32})
    assert [table.has_kernel("", "AveragePool", n, {"T": F16}) for n in (18, 19)] == [True, False]
    assert table.has_kernel("", "AveragePool", 19, {"T": F32})
    assert [table.loads("", "AveragePool", n, [F16]) for n in (18, 19, 23)] == [True, False, False]
    assert [table.loads("", "MaxPool", n, [F16]) for n in (7, 8, 11, 12)] == [
        *(True, False, False, True)
    ]
    assert table.loads("", "MaxPool", 8, [F32])
    assert table.common(table).unloadable.keys() == table.unloadable.keys()


def test_a_float16_pool_on_arm_has_no_indices() -> None:
    table = kernels.KernelTable.load(ARM64)
    for opset in (12, 17, 22):
        assert table.has_kernel("", "MaxPool", opset, {"T": F16})
        assert not table.has_kernel("", "MaxPool", opset, {"T": F16, "I": "tensor(int64)"})
        assert table.has_kernel("", "MaxPool", opset, {"T": F32, "I": "tensor(int64)"})
    row = {"provider": ARM64, "domain": "", "op": "MaxPool", "since": 12}
    low, wide = ({**row, "types": {"T": [type_]}} for type_ in (F16, F32))
    assert kernel_rows.loadable(low) == {**row, "types": {"T": [F16], "I": []}}
    assert kernel_rows.loadable(wide) == wide
