import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(name="tool")
def load_tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(
        "bench_loss", BENCHMARKS / "bench_loss_scaling.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["cnn"], "no network cnn; there are mlp, digits_cnn, resnet, transformer"),
        (["--kind", "if"], "--kind measures one network"),
        (["mlp", "transformer", "--kind", "if"], "--kind measures one network"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: list[str],
    text: str,
    tool: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_loss_scaling.py", *words])
    with pytest.raises(SystemExit) as stopped:
        tool.main()
    assert stopped.value.code == 2
    assert text in capsys.readouterr().err
