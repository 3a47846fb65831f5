"""Tables of costs that are made by running small models on a provider."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.dtypes import FLOAT16
from amp_rewrite.errors import OptionError
from amp_rewrite.kernels.cost_files import read_costs, to_text
from amp_rewrite.numerics.measure import cost_probe, timing
from amp_rewrite.numerics.measure.cost_probe import measure_costs
from amp_rewrite.numerics.measure.pairs import lookup_casts
from amp_rewrite.numerics.measure.probes import parsed
from amp_rewrite.numerics.measure.timing import NOT_RUN, Clock, fitted
from amp_rewrite.targets import CPU, OPENVINO


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "RUNS", 2)


@pytest.mark.parametrize(
    ("provider", "instructions", "share"),
    [
        ("OpenVINO", ("avx512_bf16", "amx_bf16"), 0.02),
        ("OpenVINO", ("avx512_bf16",), 0.2),
        ("CPUExecutionProvider", ("avx512_bf16", "amx_bf16"), 0.2),
    ],
)
def test_with_amx_less_has_to_be_saved(
    provider: str, instructions: tuple[str, ...], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_probe, "onednn_instructions", lambda: instructions)
    assert cost_probe._least_rounding(provider) == share  # pyright: ignore[reportPrivateUsage]


def test_a_measured_table_is_one_that_a_rewrite_takes(tmp_path: Path) -> None:
    found = measure_costs(CPU, "float16", sessions=1, only=["gather"], threads=1)
    path = tmp_path / "costs.json"
    path.write_text(to_text(found), "utf-8")
    table = read_costs(str(path))
    assert (table.provider, table.runtime.split()[0]) == (CPU, "onnxruntime")
    assert table.device.endswith("1 threads")
    assert {type_ for _, type_ in table.rates} == {"float32", "float16"}
    assert {row.to for row in table.casts} == {"float32", "float16"}
    model = parse("g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }")
    assert amp.rewrite(model, target="cpu", costs=path).options.cost_table is table


def test_what_a_provider_does_not_run_is_told_from_what_it_does() -> None:
    clock = Clock(CPU, FLOAT16, sessions=1)
    text = "g (bfloat16[4] x) => (bfloat16[4] y) {{ y = {}(x) }}"
    runs, fails = clock.microseconds([parsed(text.format(op)) for op in ("Identity", "Elu")])
    assert runs < NOT_RUN
    assert fails == NOT_RUN


def test_a_family_that_is_none_and_a_type_that_nothing_runs_in_are_refused() -> None:
    with pytest.raises(OptionError, match="no such family of operators; found nonsense"):
        measure_costs(CPU, only=["nonsense"])
    with pytest.raises(OptionError, match="not available"):
        measure_costs("NoSuchProvider")


@pytest.mark.openvino
@pytest.mark.usefixtures("openvino")
def test_a_processor_without_bfloat16_measures_nothing_on_openvino() -> None:
    from amp_rewrite.runtimes.openvino.package import computes_in

    if computes_in("bfloat16"):
        pytest.skip("this one has it")
    with pytest.raises(OptionError, match="no instructions for bfloat16"):
        measure_costs(OPENVINO)


def test_costs_are_fitted_without_negative_numbers() -> None:
    sizes = [(100, 1000), (1000, 1000), (10000, 100000), (10, 10)]
    times = [3 + 0.01 * e + 0.001 * m for e, m in sizes]
    assert fitted(sizes, times) == {"call": 3.0, "element": 0.01, "mac": 0.001}
    falling = fitted([(10, 0), (1000, 0)], [5.0, 1.0])
    assert min(falling.values()) >= 0


def test_small_models_are_valid() -> None:
    from amp_rewrite.numerics.measure.probes import CALLS, model_of

    for calls in CALLS.values():
        for call in calls[:1]:
            onnx.checker.check_model(model_of(call, FLOAT16))


def test_casts_behind_a_look_up_are_measured_with_rows_in_any_order() -> None:
    clock = Clock(CPU, FLOAT16, threads=1, sessions=1)
    rows = [*lookup_casts(clock)]
    ends = [(row["to"], row["producer"], row["consumer"]) for row in rows]
    assert ends == [("float16", "gather", "*"), ("float32", "gather", "*")]
    assert all(row["call"] >= 0 <= row["element"] for row in rows)
    value = onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [2, 3])
    numbers = timing._feed(value)  # pyright: ignore[reportPrivateUsage]
    assert numbers.shape == (2, 3)
    assert sorted(numbers.ravel().tolist()) == [*range(6)]
