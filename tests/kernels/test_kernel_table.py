"""Kernel tables: what they say, how one is made, and how a broken one fails."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from amp_rewrite import targets
from amp_rewrite.errors import KernelTableError
from amp_rewrite.kernels import kernel_table as kernels
from amp_rewrite.kernels.kernel_table import Kernel, KernelTable

TOOL = Path(__file__).parents[2] / "tools" / "make_kernel_table.py"
F16, F32, BF16 = "tensor(float16)", "tensor(float)", "tensor(bfloat16)"


@pytest.fixture(scope="module")
def cuda() -> KernelTable:
    return KernelTable.load()


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_kernel_table", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cuda_multiplies_float16_and_the_table_is_read_once(cuda: KernelTable) -> None:
    assert cuda.has_kernel("", "MatMul", 17, {"T": F16})
    assert KernelTable.load("CUDAExecutionProvider") is cuda
    assert cuda.version == kernels.versions("CUDAExecutionProvider")[-1]


def test_a_kernel_serves_the_versions_it_was_registered_for(cuda: KernelTable) -> None:
    assert not cuda.has_kernel("", "Conv", 21, {"T": BF16})
    assert cuda.has_kernel("", "Conv", 22, {"T": BF16})
    assert cuda.has_kernel("", "Conv", 23, {"T": BF16})  # Conv-22 is in force at opset 23


def test_an_unknown_provider_or_version_names_the_tables_there_are() -> None:
    with pytest.raises(KernelTableError, match="NoSuchProvider: there is no kernel table"):
        KernelTable.load("NoSuchProvider")
    with pytest.raises(KernelTableError, match=r"found 0\.0\.1; expected 1\.31\.1"):
        KernelTable.load("CUDAExecutionProvider", "0.0.1")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"version": 1}', '{"version": 2}', "\udcff"])
def test_a_broken_table_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "kernels").mkdir()
    path = tmp_path / "kernels" / "Broken_1.0.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    monkeypatch.setattr(targets, "DATA", tmp_path)
    with pytest.raises(KernelTableError, match="table"):
        KernelTable.load("Broken", "1.0")


def test_a_made_table_reads_back_with_the_same_answers(tool: ModuleType, tmp_path: Path) -> None:
    row = {"provider": "P", "domain": "", "op": "MatMul", "since": 13, "until": None}
    rows = {
        "runtime": "some runtime",
        "source": "by hand",
        "kernels": [row | {"types": {"T": [t]}} for t in (F32, F16)],
    }
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    arguments = [
        "--rows",
        str(tmp_path / "rows.json"),
        "--version",
        "9.9",
        "--output",
        str(tmp_path),
    ]
    assert tool.main(arguments) == 0
    table = kernels.parse(json.loads((tmp_path / "P_9.9.json").read_text()), "9.9")
    assert table.has_kernel("", "MatMul", 13, {"T": F16})
    assert not table.has_kernel("", "MatMul", 13, {"T": BF16})


def table(since: int, until: int | None, **types: str) -> KernelTable:
    """Return a table with one kernel of one operator."""
    sets = [text.split() for text in types.values()]
    rows = [[since, until, dict(zip(types, range(len(sets)), strict=True))]]
    data = {"version": 1, "runtime": "r 1", "provider": "P", "types": sets}
    return kernels.parse({**data, "kernels": {"": {"Op": rows}}})


def kernel(one: KernelTable, other: KernelTable) -> Kernel | None:
    return next(iter(one.common(other).kernels.get(("", "Op"), ())), None)


def test_two_tables_have_the_types_in_common_that_both_admit() -> None:
    found = kernel(table(7, None, T="a b", U="c"), table(7, None, T="b d"))
    assert found is not None
    assert dict(found.types) == {"T": {"b"}, "U": {"c"}}
    apart = table(7, None, T="a", U="c").common(table(7, None, T="b", U="c"))
    assert not apart.has_kernel("", "Op", 7, {"T": "a", "U": "c"})
    assert apart.has_kernel("", "Op", 7, {"U": "c"})  # a call that leaves T away


def test_the_tables_of_targets_in_common_are_what_both_have() -> None:
    both = kernels.table_of(targets.find("cuda,webgpu"))
    assert both is kernels.table_of(targets.find("cuda,webgpu"))
    assert both is not None
    assert both.has_kernel("", "MatMul", 17, {"T": F16})
    assert not both.has_kernel("", "LSTM", 14, {"T": F16})  # WebGPU has none
    assert not both.has_kernel("", "MatMul", 17, {"T": BF16})
    assert kernels.table_of(targets.find("schema")) is None
    assert kernels.table_of(targets.find("schema,cuda")) is KernelTable.load(
        "CUDAExecutionProvider"
    )


def test_a_table_in_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    text = {"version": 1, "runtime": "mine 2.0", "provider": "P", "types": [[F16]], "kernels": {}}
    path.write_text(json.dumps(text))
    first = kernels.table_of(targets.find(str(path)))
    assert first is not None
    assert first.version == "2.0"
    assert first is kernels.table_of(targets.find(str(path)))
    path.write_text(json.dumps({**text, "kernels": {"": {"Exp": [[13, None, {"T": 0}]]}}}))
    second = kernels.table_of(targets.find(str(path)))
    assert second is not None
    assert second.has_kernel("", "Exp", 13, {"T": F16})
    path.write_text(json.dumps({**text, "version": 7}))
    with pytest.raises(KernelTableError, match="unknown format of a table of kernels; found 7"):
        kernels.table_of(targets.find(str(path)))
    path.write_text(json.dumps({**text, "types": None}))
    with pytest.raises(KernelTableError, match="cannot be read"):
        kernels.table_of(targets.find(str(path)))


def test_what_webgpu_registers_too_freely_is_corrected() -> None:
    table = KernelTable.load("WebGpuExecutionProvider")
    assert table.has_kernel("", "BatchNormalization", 15, {"T": F16, "T1": F16, "T2": F16})
    assert not table.has_kernel("", "BatchNormalization", 15, {"T": F16, "T1": F32, "T2": F32})
    assert not table.has_kernel("", "BatchNormalization", 14, {"T": F16, "U": F32})
    assert table.has_kernel("", "BatchNormalization", 9, {"T": F16})
    for op, opset in (("LayerNormalization", 13), ("RMSNormalization", 23)):
        assert table.has_kernel("", op, opset, {"T": F16, "V": F16})
        assert not table.has_kernel("", op, opset, {"T": F16, "V": F32})
    assert table.has_kernel("", "Resize", 18, {"T1": F16, "T2": F32})
    assert not table.has_kernel("", "Resize", 18, {"T1": F16, "T2": F16})
