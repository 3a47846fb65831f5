"""The fastest form of a model on a device: which one is taken, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from rewrite_text import parse

import amp_rewrite as amp
from amp_rewrite.cli import main
from amp_rewrite.errors import OptionError, VerdictError
from amp_rewrite.numerics import measured_conversion
from amp_rewrite.numerics.measure.contest import RUNS, Budget, Times
from amp_rewrite.numerics.measured_conversion import DEFAULT, LOWEST
from amp_rewrite.targets import CPU

pytest.importorskip("onnxruntime")

ONES = "{" + ", ".join(["0.125"] * 64) + "}"
MODEL = f"""g (float[4,8] x) => (float[4,8] y) <float[8,8] w = {ONES}> {{
    h = MatMul(x, w) a = Tanh(h) b = MatMul(a, w) s = Softmax(b) y = MatMul(s, w) }}"""
FEEDS = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)}

Contest = Callable[[Mapping[str, float]], None]


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes up how many milliseconds forms take; others take 20."""

    def with_times(times: Mapping[str, float]) -> list[str]:
        ran: list[str] = []

        def timed(
            forms: Mapping[str, Any], budget: Budget, full: str, *_: object
        ) -> dict[str, Times]:
            ran.extend(forms)
            assert full == "float32"
            assert budget.left > len(forms)
            for run in forms.values():
                budget.take(run)
            return {name: Times((times.get(name, 20.0) / 1000,) * 3) for name in forms}

        monkeypatch.setattr(measured_conversion, "timed_in_turn", timed)
        return ran

    return with_times


def measured(**options: Any) -> amp.Conversion:
    return amp.convert(
        parse(MODEL), [FEEDS], measure=True, providers=[CPU], target="schema", **options
    )


def test_the_fastest_form_that_holds_is_taken(made_up: Any) -> None:
    ran = made_up({"float32": 10, DEFAULT: 5})
    found = measured()
    choice = found.choice
    assert choice is not None
    assert {"float32", DEFAULT} <= {*ran}
    assert (choice.chosen, choice.saved) == (DEFAULT, pytest.approx(0.5))
    assert found.writable
    assert found.verdict.endswith("fastest here: the default, 50.0% less time than float32")
    first, *forms = choice.lines
    assert first.startswith(f"measured on {CPU} (onnxruntime ")
    assert forms[0].startswith("  the default: 5 ms (faster half of 3, 5 to 5), ")
    assert "holds, chosen" in forms[0]
    assert any(line.startswith("the file says float16, the engine computed in f") for line in forms)
    assert found.to_dict()["verdict"]["measured"]["chosen"] == DEFAULT


@pytest.mark.parametrize("default", [9.8, 30])
def test_what_is_not_faster_is_not_written_unless_asked(
    default: float, made_up: Any, tmp_path: Path
) -> None:
    made_up({"float32": 10, DEFAULT: default})
    found, path = measured(), tmp_path / "m.onnx"
    assert not found.writable
    with pytest.raises(VerdictError, match=r"nothing in 16 bits is faster than float32 here by 3%"):
        found.save(path)
    assert not path.exists()
    found.save(path, write_slower=True)
    assert path.exists()


def test_a_faster_form_that_does_not_hold_is_passed_over(
    made_up: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up({"float32": 10, DEFAULT: 5, LOWEST: 4})
    asked: list[Any] = []

    def judge(result: Any) -> Any:
        asked.append(result)
        return amp.convert(parse(MODEL), [FEEDS], target="cpu")  # nothing low: not to be written

    job = amp.convert(parse(MODEL), [FEEDS], target="schema")
    search = measured_conversion.Measurement(parse(MODEL), job, FEEDS, CPU, judge, lambda _: None)
    monkeypatch.setattr(search, "_is_new", lambda result: result.plan.computes_low)  # all of them
    found = search.fastest()
    assert asked
    assert found.choice is not None
    assert found.choice.chosen == DEFAULT


@pytest.mark.parametrize(
    ("full", "default", "lowest", "chosen"),
    [
        (10, 5.15, 5, DEFAULT),  # ahead by chance, perhaps
        (10, 5.25, 5, LOWEST),
        (10, 9.75, 9.6, LOWEST),  # the default does not save enough
        (0.2, 0.115, 0.1, DEFAULT),  # the clock's own differences
        (0.2, 0.125, 0.1, LOWEST),
        (0.12, 0.118, 0.1, LOWEST),
    ],
)
def test_the_default_is_favoured_if_it_is_fast_enough(
    full: float,
    default: float,
    lowest: float,
    chosen: str,
    made_up: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_up({"float32": full, DEFAULT: default, LOWEST: lowest})
    job = amp.convert(parse(MODEL), [FEEDS], target="schema")
    search = measured_conversion.Measurement(
        parse(MODEL), job, FEEDS, CPU, lambda result: replace(job, result=result), lambda _: None
    )
    monkeypatch.setattr(search, "_is_new", lambda result: result.plan.computes_low)  # all of them
    choice = search.fastest().choice
    assert choice is not None
    assert choice.chosen == chosen


@pytest.mark.parametrize(
    ("own", "error", "chosen"),
    [
        (5.3, 3.0, DEFAULT),
        (5.3, 1.2, LOWEST),  # as much is not worth 4 % of the time
        (5.1, 3.0, LOWEST),  # the engine's own choice would be faster than the default
        (None, 3.0, LOWEST),
    ],
)
def test_a_third_of_the_error_is_worth_a_little_time_but_none_that_the_engine_would_save(
    own: float | None, error: float, chosen: str, made_up: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up({"float32": 10, DEFAULT: 5.27, LOWEST: 5, "its own": own})
    job = amp.convert(parse(MODEL), [FEEDS], target="schema")
    monkeypatch.setattr(
        measured_conversion, "own_choices", lambda _: {} if own is None else {"its own": CPU}
    )
    monkeypatch.setattr(
        measured_conversion, "_error", lambda judged: 0.001 if judged is job else 0.001 * error
    )
    search = measured_conversion.Measurement(
        parse(MODEL), job, FEEDS, CPU, lambda result: replace(job, result=result), lambda _: None
    )
    monkeypatch.setattr(search, "_is_new", lambda result: result.plan.computes_low)  # all of them
    monkeypatch.setattr(search, "_rounds_less", lambda name, _: name == DEFAULT)
    choice = search.fastest().choice
    assert choice is not None
    assert choice.chosen == chosen


def test_the_costs_that_were_measured_choose_alike_without_the_device(
    made_up: Any, tmp_path: Path
) -> None:
    made_up({"float32": 10})
    choice = measured().choice
    assert choice is not None
    assert choice.nodes == 5
    again = amp.rewrite(parse(MODEL), target="schema", costs=choice.costs)
    assert again.options.cost_table is choice.costs
    other = parse(MODEL.replace("Tanh", "Sigmoid"))
    with pytest.raises(OptionError, match="of another model"):
        amp.rewrite(other, target="schema", costs=choice.costs)


def test_a_model_runs_at_most_40_times() -> None:
    said: list[str] = []
    measured(progress=said.append)
    runs = [int(text.split()[2]) for text in said if text.startswith("measuring: run ")]
    assert runs == [*range(1, len(runs) + 1)]
    assert 8 < len(runs) <= RUNS


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data": None, "providers": [CPU]}, "measuring runs the model on data"),
        ({"data": [FEEDS]}, "measuring needs a provider"),
        ({"data": [FEEDS], "providers": [CPU], "target": "cuda"}, "does not run on the provider"),
    ],
)
def test_what_cannot_be_measured_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        amp.convert(parse(MODEL), options.pop("data"), measure=True, **options)


def command(folder: Path, words: str) -> object:
    """Return the exit status of `convert`."""
    model, data = folder / "m.onnx", folder / "x.npz"
    onnx.save(parse(MODEL), model)
    np.savez(data, x=FEEDS["x"])
    names = {"MODEL": model, "DATA": data, "OUT": folder / "out.onnx", "COSTS": folder / "c.json"}
    with pytest.raises(SystemExit) as leaving:
        main(["convert", *(str(names.get(word, word)) for word in words.split())])
    return leaving.value.code


def test_the_command_writes_the_fastest_and_its_costs(
    made_up: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up({"float32": 10, DEFAULT: 5, LOWEST: 6})
    words = "MODEL -o OUT --target schema --provider cpu --data DATA --measure --save-costs COSTS"
    assert command(tmp_path, words) == 0
    said = capsys.readouterr().out
    assert "  the default: 5 ms" in said
    assert "\nwrote " in said
    assert (tmp_path / "out.onnx").exists()
    assert command(tmp_path, "MODEL -o OUT --target schema --costs COSTS") == 0


def test_the_command_writes_nothing_that_is_not_faster(
    made_up: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up({"float32": 10, DEFAULT: 12})
    words = "MODEL -o OUT --target schema --provider cpu --data DATA --measure"
    assert command(tmp_path, words) == 3
    assert "--write-slower writes it anyway" in capsys.readouterr().out
    assert not (tmp_path / "out.onnx").exists()
    assert command(tmp_path, f"{words} --write-slower") == 0
    assert "out.onnx, although it is not faster than float32" in capsys.readouterr().out
    assert (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("MODEL -o OUT --measure", "--measure runs the model, and --data is missing"),
        ("MODEL -o OUT --measure --data DATA", "--provider is missing"),
        ("MODEL -o OUT --write-slower", "--write-slower is about what was measured"),
        ("MODEL -o OUT --save-costs COSTS", "--save-costs needs --measure"),
        ("MODEL -o OUT --costs DATA", "the table of costs cannot be read"),
        ("MODEL -o OUT --costs COSTS", "the table of costs cannot be read"),
    ],
)
def test_what_does_not_fit_together_is_one_line(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, words) in (1, 2)
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not (tmp_path / "out.onnx").exists()
