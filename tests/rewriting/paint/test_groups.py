"""Groups stay fused on the CPU provider: its optimised graphs hold the same operators as before.

It fuses float32 groups, and normalizations in float16; of activations it has float32 kernels alone.
tests/tools/test_cuda_stub.py asks the CUDA provider the same.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import onnx
import pytest
from fused_operators import optimized_operators
from group_models import FORMS, Form, members, model_around
from rewrite_text import rewritten

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.kernels import fusions
from amp_rewrite.kernels.kernel_table import KernelTable

NOT_BEHIND_A_CAST = {"fast-gelu-power"}
"""What ONNX Runtime does not fuse behind a Cast, and whose input a product makes."""

NORMALIZATIONS = [name for name in FORMS if "normalization" in name]


def fused(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    """Return the operators of a model's optimised graph, without Casts."""
    found = Counter(optimized_operators(model, folder))
    del found["Cast"]
    return found


def assert_stays_fused(model: onnx.ModelProto, folder: Path, **options: object) -> None:
    """Rewrite a model, some of which must become low, and compare the optimised graphs."""
    result = rewritten(model, precision="float16", **options)
    assert result.report.summary.nodes_converted > 0
    assert fused(amp.to_proto(result.model), folder) == fused(model, folder)


@pytest.mark.share(3)
@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("name", FORMS)
def test_the_form_is_fused_before(name: str, opset: int, tmp_path: Path) -> None:
    assert fused(model_around(FORMS[name], opset), tmp_path)[FORMS[name].operator] == 1


@pytest.mark.share(11, each="name")
@pytest.mark.parametrize("opset", [17, 18, 21])
@pytest.mark.parametrize("name", [name for name in FORMS if name not in NOT_BEHIND_A_CAST])
def test_a_group_that_the_user_keeps_float32_between_low_products_stays_fused(
    name: str, opset: int, tmp_path: Path
) -> None:
    model = model_around(FORMS[name], opset)
    assert_stays_fused(model, tmp_path, target="cuda", deny_nodes=members(FORMS[name]))


@pytest.mark.share(2)
@pytest.mark.parametrize("opset", [17, 18, 21])
@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_a_normalization_between_low_products_stays_fused(
    name: str, opset: int, tmp_path: Path
) -> None:
    assert_stays_fused(model_around(FORMS[name], opset), tmp_path, target="cuda")


def between_clips(form: Form, opset: int) -> onnx.ModelProto:
    """Return a group between two Clips h and y, which a CPU runs in float16."""
    constants = f"{form.constants}, float least = {{-9.0}}, float most = {{9.0}}"
    body = f"h = Clip(f, least, most)\n{form.body}"
    return model_around(
        Form(body, constants, form.operator), opset, behind="y = Clip(o, least, most)", made="f"
    )


@pytest.mark.share(7)
@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("name", [name for name in FORMS if name not in NOT_BEHIND_A_CAST])
def test_a_group_between_what_a_cpu_runs_in_float16_stays_fused(
    name: str, opset: int, tmp_path: Path
) -> None:
    model = between_clips(FORMS[name], opset)
    assert_stays_fused(model, tmp_path, target="cpu", allow_nodes=["h", "y"])


@pytest.mark.parametrize("name", ["layer-normalization", "layer-normalization-one-over"])
def test_a_residual_in_front_of_a_normalization_stays_part_of_it(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    words = re.sub(r"\bh\b", "sum", form.body)
    model = between_clips(form._replace(body=f"sum = Add(h, f)\n{words}"), 17)
    assert fused(model, tmp_path)["SkipLayerNormalization"] == 1
    assert_stays_fused(model, tmp_path, target="cpu", allow_nodes=["h", "y"])


def test_a_cpu_has_float16_kernels_of_normalizations_alone() -> None:
    kernels, table = KernelTable.load(targets.CPU), fusions.load(targets.ONNX_RUNTIME)
    run = {name for name, row in table.items() if row.runs(kernels, 17, FLOAT16, FLOAT16)}
    assert run == {"LayerNormalization", "RMSNormalization"}
