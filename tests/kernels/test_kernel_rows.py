"""From rows that a runtime registers to a kernel table."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from amp_rewrite.errors import KernelTableError
from amp_rewrite.kernels import kernel_rows
from amp_rewrite.kernels import kernel_table as kernels

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


def test_rows_of_different_versions_or_constraints_stay_apart() -> None:
    rows = [
        (1, 5, {"T": (F32,)}),
        (6, None, {"T": (F16,)}),
        (6, None, {}),
        (6, None, {"U": (F16,)}),
    ]
    assert len(kernel_rows.merge(rows)) == len(rows)


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


def test_a_python_without_a_runtime_is_one_line() -> None:
    with pytest.raises(KernelTableError, match="cannot list its kernels; found no message"):
        kernel_rows.ask_runtime(python="/bin/false")


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


def test_a_package_that_is_not_installed_is_one_line() -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(KernelTableError, match="no_such_package: the package of the execution"):
        kernel_rows.ask_runtime("NoSuchExecutionProvider", "no_such_package")
