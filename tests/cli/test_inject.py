"""`amp-rewrite inject`: our own steps, graphs of others, wrong options."""

from pathlib import Path
from typing import Any

import pytest
import train_models

import amp_rewrite as amp
from amp_rewrite.cli.main import main
from amp_rewrite.training.step.read_info import read_info

FOREIGN = Path(__file__).parents[1] / "training" / "inject" / "foreign" / "onnx_ad_step.onnx"
WEIGHTS = ("w1", "b1", "w2", "b2")


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    output = capsys.readouterr()
    return int(ended.value.code or 0), output.out, output.err


@pytest.fixture
def step(tmp_path: Path) -> Path:
    model = amp.load(train_models.mlp((8, 16, 3)))
    loss = amp.value(model, "loss")
    amp.save(amp.build_step(amp.optimizers.Adam().minimize(loss)), tmp_path / "step.onnx")
    return tmp_path / "step.onnx"


def foreign_options() -> list[str]:
    options = ["--loss", "loss", "--seed", "adj_loss", "--update", "step=new_step"]
    for name in WEIGHTS:
        options += ["--gradient", f"{name}=adj_{name}"]
        options += ["--update", f"{name}=new_{name}", "--update", f"m_{name}=new_m_{name}"]
    return options


def test_a_step_of_ours_needs_no_options(step: Path, capsys: pytest.CaptureFixture[str]):
    output = step.with_name("out.onnx")
    status, out, err = run(capsys, "inject", step, "-o", output)
    assert (status, err) == (0, "")
    assert "seed gradient/seed: 4 gradients unscaled, 16 updates by if" in out
    config = read_info(amp.load(output)).loss_scale
    assert config is not None
    assert config["config"]["max_consecutive_skips"] == 20


def test_an_invalid_step_is_not_written(step: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch):
    def spoiled(*arguments: Any, **options: Any) -> Any:
        made = amp.inject_loss_scaling(*arguments, **options)
        made.graph[0].op_type = "MadeUp"
        return made

    monkeypatch.setattr("amp_rewrite.cli.inject.inject_loss_scaling", spoiled)
    status, out, err = run(capsys, "inject", step, "-o", step.with_name("out.onnx"))
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "the rewritten model is not valid" in err
    assert "MadeUp" in err
    assert not step.with_name("out.onnx").exists()


def test_a_foreign_graph_is_described_by_options(tmp_path: Path, capsys: Any):
    output = tmp_path / "out.onnx"
    options = [*foreign_options(), "--loss-scale", "1024", "--precision", "float16"]
    status, out, err = run(capsys, "inject", FOREIGN, "-o", output, *options)
    assert (status, err) == (0, "")
    assert "seed adj_loss: 4 gradients unscaled, 9 updates by if\n" in out
    info = read_info(amp.load(output))
    assert info.precision == "float16"
    assert info.having("loss_scale") is None


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--update", "w1"], "--update needs two names; found 'w1'; expected NAME=VALUE"),
        (["--gradient", "w1=a", "--gradient", "w1=b"], "w1: --gradient is given twice"),
        (["--loss-scale", "dynamo"], "impossible loss scale; found 'dynamo'"),
        (["--loss-scale", "0.5"], "must be at least 1"),
        (["--loss-scale", "none"], "there is no loss scale to inject; expected 'dynamic' or a"),
        (["--conditional", "when"], "unknown way to make updates conditional; found 'when'"),
        (["--seed", "seed"], "gradient/seed"),
    ],
)
def test_wrong_options_are_errors_in_one_line(
    step: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    output = step.with_name("out.onnx")
    status, out, err = run(capsys, "inject", step, "-o", output, *options)
    about_the_graph = options[-1] in ("0.5", "none", "seed")
    assert (status, out, err.count("\n")) == (1 if about_the_graph else 2, "", 1)
    assert message in err
    assert not output.exists()


def test_a_graph_that_says_nothing_of_itself_needs_options(tmp_path: Path, capsys: Any):
    status, _, err = run(capsys, "inject", FOREIGN, "-o", tmp_path / "out.onnx")
    assert status == 1
    assert "loss is not given, and the model does not tell it" in err


def test_the_input_is_not_overwritten(step: Path, capsys: pytest.CaptureFixture[str]):
    before = step.read_bytes()
    assert run(capsys, "inject", step, "-o", step)[0] == 1
    assert step.read_bytes() == before
