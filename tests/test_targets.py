"""A target is one row: whatever differs between targets is asked of it, and of its data."""

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx.parser
import pytest
from house import MODULES, trees

import amp_rewrite as amp
from amp_rewrite import targets
from amp_rewrite.cli import main
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import KernelTableError, OptionError
from amp_rewrite.oplists import OpLists
from amp_rewrite.runtimes.ort import providers
from amp_rewrite.runtimes.ort.device import Device, device_of
from amp_rewrite.targets import Target

PACKAGE = Path(amp.__file__).parent
PROVIDER = "NpuExecutionProvider"
NPU: Any = "npu"
ROW = Target(NPU, NPU, PROVIDER, device="npu", kernels=PROVIDER, accumulates_in=FLOAT16)

LISTS = """
version: 1
precision: float16
target: npu
extend: float16_cuda
remove:
  - {op: Exp, why: The device sums in float32 there.}
allow:
  - {op: Exp, why: The device has a table of it.}
no_kernel:
  - {ops: [%s], why: The device computes little.}
"""

KERNELS = {
    "version": 1,
    "runtime": "a runtime for a device of its own",
    "provider": PROVIDER,
    "source": "this test",
    "types": [["tensor(float)", "tensor(float16)"]],
    "kernels": {"": {"MatMul": [[13, None, {"T": 0}]], "Exp": [[13, None, {"T": 0}]]}},
}

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[N,256] x) => (float[N,4] y)'
    f"<float[256,4] w = {{{','.join(['1'] * 1024)}}}>"
    "{ [product] h = MatMul(x, w) [exp] t = Exp(h) [softplus] y = Softplus(t) }"
)


@pytest.fixture
def npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a target as its author would: a row, op lists and a kernel table."""
    data = tmp_path / "lists"
    shutil.copytree(str(targets.DATA), data)
    (data / "float16_npu.yaml").write_text(LISTS % "Softplus", "utf-8")
    (data / "kernels" / f"{PROVIDER}_1.0.json").write_text(json.dumps(KERNELS), "utf-8")
    monkeypatch.setattr(targets, "DATA", data)
    monkeypatch.setattr(targets, "TARGETS", (*targets.TARGETS, ROW))


def low_nodes(result: amp.RewriteResult) -> set[str]:
    return {result.context.type_graph.node_name(v) for v in result.painting.allowed()}


@pytest.mark.usefixtures("npu")
def test_a_new_target_converts_with_its_own_lists_and_kernels() -> None:
    assert low_nodes(amp.rewrite(MODEL, target=NPU)) == {"product", "exp"}
    assert low_nodes(amp.rewrite(MODEL, target="schema")) == {"product"}
    missing = amp.explain(amp.rewrite(MODEL, target=NPU, allow_nodes=["softplus"]), "softplus")
    assert "target npu has no float16 kernel for it" in missing


@pytest.mark.usefixtures("npu")
def test_the_lists_of_a_new_target_are_checked_against_its_kernels(tmp_path: Path) -> None:
    found = amp.check_lists("float16_npu")
    assert found.lists == ("lists/float16_npu.yaml",)
    place = f"but {PROVIDER} 1.0 has no float16 kernel of it"
    assert any("Conv is on" in f.message and place in f.message for f in found.findings)
    assert not any(f.message.startswith("Softplus") for f in found.findings)
    needless = tmp_path / "needless.yaml"
    needless.write_text(LISTS % "Exp", "utf-8")
    assert f"Exp says `no_kernel`, but {PROVIDER} 1.0 has a float16 kernel" in str(
        amp.check_lists(needless).to_text()
    )


@pytest.mark.usefixtures("npu")
def test_a_new_target_calibrates_into_an_overlay_of_its_own_lists(tmp_path: Path) -> None:
    data = {"x": np.tile(np.array([1000.0, -1000.0], np.float32), (1, 128))}
    found = amp.calibrate(MODEL, [data], target=NPU)
    assert [(r.node, r.why) for r in found.rules] == [
        ("product", "partial sums reached 2.56e+05 > 65504 over 1 batch")
    ]
    assert amp.calibrate(MODEL, [data], target="cuda").rules == ()  # it sums in float32
    overlay = tmp_path / "overlay.yaml"
    found.save(overlay)
    assert "target: npu\nextend: float16_npu\n" in overlay.read_text("utf-8")
    assert low_nodes(amp.rewrite(MODEL, target=NPU, lists=overlay)) == {"exp"}


@pytest.mark.usefixtures("npu")
def test_verify_adds_as_the_kernels_of_a_new_target_do() -> None:
    data = {"x": np.full((1, 256), 0.1, np.float32)}
    rewritten = amp.rewrite(MODEL, target=NPU, deny_nodes=["exp"]).model
    errors = [
        amp.verify(MODEL, rewritten, data, target=target).outputs[0].max_abs
        for target in ("cuda", NPU)
    ]
    assert errors[0] * 4 < errors[1]
    with pytest.raises(OptionError, match="unknown target; found 'tpu'"):
        amp.verify(MODEL, rewritten, data, target="tpu")


@pytest.mark.usefixtures("npu")
def test_a_target_without_tensor_cores_has_no_level_about_them() -> None:
    lists = amp.load_lists(target=NPU)
    assert lists.with_level("TENSOR_CORES_ONLY").entries == lists.entries
    with pytest.raises(
        OptionError, match=r"float16 on target cuda or tensorrt or schema only; .* npu"
    ):
        lists.with_level("UNSAFE_FORCE_ALL")


@pytest.mark.usefixtures("npu")
def test_the_device_of_a_new_target_is_that_of_its_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(providers, "available_providers", lambda: (PROVIDER,))
    assert device_of([PROVIDER]) == Device("npu", 0)


@pytest.mark.usefixtures("npu")
def test_the_command_line_takes_a_new_target(tmp_path: Path) -> None:
    before, after = tmp_path / "m.onnx", tmp_path / "m.fp16.onnx"
    onnx.save(MODEL, before)
    with pytest.raises(SystemExit) as left:
        main(["convert", str(before), "-o", str(after), "--target", NPU, "--quiet"])
    assert left.value.code == 0
    assert {i.data_type for i in onnx.load(after).graph.initializer} == {FLOAT16.ir.value}


def test_an_unknown_target_is_refused_with_the_known_names() -> None:
    with pytest.raises(OptionError, match="unknown target; found 'tpu'; expected cuda or cpu or"):
        targets.find("tpu")
    with pytest.raises(OptionError, match="unknown target; found 'tpu'"):
        OpLists("float16", "tpu", ()).with_level("default")


def test_the_names_that_a_type_checker_knows_are_those_of_the_table() -> None:
    assert get_args(targets.TargetName) == tuple(target.name for target in targets.TARGETS)


def test_no_other_file_knows_a_target_by_its_name() -> None:
    # "cpu" and "cuda" are also what ONNX Runtime and PyTorch call a device's memory.
    devices = {"runtimes/ort/device.py", "runtimes/facts.py", "training/distributed/memory.py"}
    devices |= {
        f"training/session/{n}.py" for n in ("compiled_program", "program_cache", "device_limits")
    }
    devices |= {"numerics/emulate/emulated_feeds.py"}  # a tensor's method
    names = {t.name for t in targets.TARGETS} | {t.provider for t in targets.TARGETS}
    found = {
        str(MODULES[name].relative_to(PACKAGE))
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in names - {None}
    }
    assert found - devices == {"targets.py"}


@pytest.mark.usefixtures("npu")
def test_several_targets_convert_what_all_of_them_support() -> None:
    assert low_nodes(amp.rewrite(MODEL, target="npu,schema")) == {"product"}  # Exp overflows there
    both = targets.find("npu, cuda")
    assert both.precisions == ("float16", "bfloat16")
    assert both.accumulates_in is FLOAT16
    assert both.provider is None
    assert both.parts == (ROW, targets.find("cuda"))
    assert targets.find("npu,npu") is ROW


@pytest.mark.usefixtures("npu")
def test_several_targets_calibrate_into_an_overlay_of_all_their_lists(tmp_path: Path) -> None:
    data = {"x": np.tile(np.array([1000.0, -1000.0], np.float32), (1, 128))}
    overlay = tmp_path / "overlay.yaml"
    amp.calibrate(MODEL, [data], target="npu,cuda").save(overlay)
    assert "target: any\nextend: float16_npu,float16_cuda\n" in overlay.read_text("utf-8")
    assert low_nodes(amp.rewrite(MODEL, target="npu,cuda", lists=overlay)) == set()


def test_several_targets_need_a_precision_that_all_compute_in() -> None:
    with pytest.raises(OptionError, match="cuda,webgpu does not compute in bfloat16"):
        amp.rewrite(MODEL, target="cuda,webgpu", precision="bfloat16")


def test_any_is_what_everybody_has() -> None:
    found = targets.find("ANY")
    assert {"cuda", "webgpu", "directml"} <= {part.name for part in found.parts}
    assert found.precisions == ("float16",)
    together = ",".join(part.name for part in found.parts)
    results = [amp.rewrite(MODEL, target=name) for name in ("any", together)]
    assert low_nodes(results[0]) == low_nodes(results[1])
    assert amp.rewrite(results[0]).options.chosen_target == "any"


def test_a_kernel_table_is_a_target(tmp_path: Path) -> None:
    path = tmp_path / "npu.json"
    path.write_text(json.dumps(KERNELS), "utf-8")
    assert low_nodes(amp.rewrite(MODEL, target=str(path))) == {"product"}
    found = targets.find(str(path))
    assert (found.provider, found.lists, found.kernels) == (PROVIDER, "cuda", str(path))


def test_the_table_of_a_known_provider_changes_its_kernels_alone(tmp_path: Path) -> None:
    path = tmp_path / "webgpu.json"
    path.write_text(json.dumps({**KERNELS, "provider": targets.WEBGPU}), "utf-8")
    found, known = targets.find(str(path)), targets.find("webgpu")
    assert (found.lists, found.accumulates_in) == (known.lists, known.accumulates_in)
    # The sums are those that were measured: the product over 256 terms is short enough.
    assert low_nodes(amp.rewrite(MODEL, target=str(path))) == {"product"}


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_target_that_is_no_table_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, "utf-8")
    for name in (path, tmp_path / "none.json"):
        with pytest.raises(KernelTableError, match="the kernel table cannot be read"):
            targets.find(str(name))


@pytest.mark.parametrize("name", ["cuda,", ",", "cuda,tpu", "", "cuda webgpu"])
def test_a_wrong_name_among_several_targets_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match="unknown target"):
        targets.find(name)


@pytest.mark.parametrize("name", ["directml", "coreml"])
def test_targets_from_published_tables_convert_short_sums(name: str) -> None:
    assert low_nodes(amp.rewrite(MODEL, target=name)) == {"product"}
    long = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,2048] x, float[2048,4] w) =>'
        " (float[N,4] y) { [long] y = MatMul(x, w) }"
    )
    assert low_nodes(amp.rewrite(long, target=name)) == set()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("trt", "tensorrt"),
        ("DML", "directml"),
        ("CUDAExecutionProvider", "cuda"),
        ("WebGpuExecutionProvider", "webgpu"),
        ("CPUExecutionProvider", "cpu"),
        ("cuda,dml", "cuda,directml"),
        (" OpenVINOExecutionProvider ", "openvino"),
    ],
)
def test_short_names_and_providers_are_understood(name: str, meant: str) -> None:
    assert targets.spelled(name) == meant
    assert targets.find(name).parts == targets.find(meant).parts


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("gpu", "cuda for NVIDIA"),
        ("ort", "name the provider"),
        ("mps", "did you mean coreml?"),
        ("aarch64", "did you mean cpu-arm64?"),
        ("fpga", "name a kernel table"),
        ("cdua", "did you mean 'cuda'?"),
        ("tpu", "did you mean any"),
    ],
)
def test_a_name_of_several_targets_is_answered(name: str, answer: str) -> None:
    with pytest.raises(OptionError, match=re.escape(answer)):
        targets.find(name)
