"""Kernel tables from pages that vendors publish."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from kernel_rows import table_for

from amp_rewrite.kernels import kernel_table as kernels
from amp_rewrite.targets import COREML, DIRECTML

TOOLS = Path(__file__).parents[2] / "tools"
F16, F32 = "tensor(float16)", "tensor(float)"

OPERATOR_KERNELS = """
## Operators implemented by CPUExecutionProvider

| Op Name | Parameters | OpSet Version | Types Supported |
|---------|------------|---------------|-----------------|
|**Operator Domain:** *ai.onnx*||||
|Tan|*in* input:**T**<br> *out* output:**T**|7+|**T** = tensor(float)|

<a name="dmlexecutionprovider"/>

## Operators implemented by DmlExecutionProvider

| Op Name | Parameters | OpSet Version | Types Supported |
|---------|------------|---------------|-----------------|
|**Operator Domain:** *ai.onnx*||||
|Abs|*in* X:**T**<br> *out* Y:**T**|13+|**T** = tensor(float), tensor(float16)|
|||[6, 12]|**T** = tensor(float)|
|BatchNormalization|*in* X:**T**<br> *out* Y:**T**|15+|**T** = tensor(float), tensor(float16)|
|Where|*in* condition:**B**<br> *in* X:**T**|9|**B** = tensor(bool)<br/> **T** = tensor(float16)|
| |
|**Operator Domain:** *com.microsoft*||||
|Gelu|*in* X:**T**<br> *out* Y:**T**|1+|**T** = tensor(float), tensor(float16)|
"""

MLPROGRAM = """
|Operator|Note|
|--------|------|
|ai.onnx:Add||
|ai.onnx:Argmax||
|ai.onnx:Cast||
|ai.onnx:GridSample|4D input.|
|ai.onnx:Pow|Only supports cases when both inputs are fp32.|
"""


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(name: str, page: str, provider: str) -> kernels.KernelTable:
    rows = list(tool(name).rows(page))
    return kernels.parse(table_for({"runtime": "r 1", "source": "s", "kernels": rows}, provider))


def test_the_page_of_operator_kernels_is_read_by_version_and_domain() -> None:
    found = table("directml_kernels", OPERATOR_KERNELS, DIRECTML)
    assert found.has_kernel("", "Abs", 13, {"T": F16})
    assert not found.has_kernel("", "Abs", 12, {"T": F16})
    assert found.has_kernel("", "Abs", 12, {"T": F32})
    assert found.has_kernel("", "Where", 9, {"T": F16, "B": "tensor(bool)"})
    assert not found.has_kernel("", "Where", 16, {"T": F16})
    assert found.has_kernel("com.microsoft", "Gelu", 1, {"T": F16})
    assert not found.has_kernel("", "Tan", 7, {"T": F32})  # of another provider


def test_directml_normalizes_a_batch_in_one_type() -> None:
    found = table("directml_kernels", OPERATOR_KERNELS, DIRECTML)
    assert found.has_kernel("", "BatchNormalization", 15, {"T": F16, "T1": F16, "T2": F16})
    assert not found.has_kernel("", "BatchNormalization", 15, {"T": F16, "T1": F32, "T2": F32})


def test_operators_of_core_ml_have_one_type_a_call() -> None:
    found = table("coreml_kernels", MLPROGRAM, COREML)
    assert found.has_kernel("", "Add", 14, {"T": F16})
    assert found.has_kernel("", "ArgMax", 13, {"T": F16})
    assert found.has_kernel("", "Cast", 21, {"T1": F32, "T2": F16})
    assert found.has_kernel("", "GridSample", 16, {"T1": F16, "T2": F16})
    assert not found.has_kernel("", "GridSample", 16, {"T1": F16, "T2": F32})
    assert found.has_kernel("", "Pow", 15, {"T": F32, "T1": F32})
    assert not found.has_kernel("", "Pow", 15, {"T": F16})


def test_the_shipped_tables_are_those_of_their_pages() -> None:
    directml = kernels.KernelTable.load(DIRECTML)
    assert directml.has_kernel("", "Conv", 11, {"T": F16})
    assert not directml.has_kernel("", "Gelu", 20, {"T": F16})
    assert kernels.KernelTable.load(COREML).has_kernel("", "Gelu", 20, {"T": F16})
