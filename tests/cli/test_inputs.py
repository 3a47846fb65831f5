"""`amp-rewrite inputs`, and the demo, which writes what README.md goes on with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import amp_rewrite as amp
from amp_rewrite.cli import main
from amp_rewrite.cli.demo import demo_model
from amp_rewrite.numerics.inputs.batches import read_batch

KINDS = """<ir_version: 9, opset_import: ["" : 17]>
g (int64[N,S] ids, float[N,S] attention_mask, bfloat16[N,1] low, float[N,S] z) => (float[N,S] y)
<float[5,1] table = {1, 2, 3, 4, 5}, int64[1] last = {-1}> {
  rows = Gather(table, ids) flat = Squeeze(rows, last) l = Cast<to: int = 1>(low) r = Log(z)
  a = Add(flat, attention_mask) s = Softmax(a) b = Mul(s, l) y = Add(b, r)
}"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder with the demo's model and one with inputs of many kinds."""
    onnx.save(demo_model(), tmp_path / "demo.onnx")
    onnx.save(onnx.parser.parse_model(KINDS), tmp_path / "kinds.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main([*arguments])
    return int(left.value.code or 0)


def test_a_batch_is_made_by_what_each_input_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inputs", "kinds.onnx", "-o", "kinds.npz") == 0
    batch = read_batch("kinds.npz")
    assert set(batch) == {"ids", "attention_mask", "low", "z"}
    assert batch["ids"].min() >= 0
    assert batch["ids"].max() < 5
    assert batch["z"].min() >= 0  # of a negative number the logarithm is NaN
    assert batch["low"].dtype == np.float32  # .npz has no bfloat16
    said = capsys.readouterr().out
    assert " ids " in said
    assert " mask " in said
    assert "batch['ids'] = ..." in said
    assert "  amp-rewrite convert kinds.onnx -o kinds.fp16.onnx --data kinds.npz" in said


@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
def test_what_it_says_to_do_next_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inputs", "demo.onnx", "-o", "in.npz") == 0
    lines = capsys.readouterr().out.splitlines()
    edit = "\n".join(line.strip() for line in lines if line.startswith("  ") and "batch" in line)
    changed = edit.replace("...", "batch['image'] * 0")
    subprocess.run([sys.executable, "-c", f"import numpy\n{changed}"], check=True)
    assert not read_batch("in.npz")["image"].any()
    command = lines[-1].split()
    assert run(*command[1:]) == 0
    assert Path("demo.fp16.onnx").is_file()


def test_a_folder_holds_batches_that_differ_and_the_same_ones_again() -> None:
    assert run("inputs", "demo.onnx", "-o", "made", "--quiet") == 0
    first = {path.name: read_batch(path)["image"] for path in Path("made").iterdir()}
    assert sorted(first) == ["0.npz", "1.npz", "2.npz", "3.npz"]
    assert len({array.tobytes() for array in first.values()}) == 4
    assert run("inputs", "demo.onnx", "-o", "made", "--quiet") == 0
    assert all((read_batch(Path("made") / n)["image"] == a).all() for n, a in first.items())
    assert amp.calibrate("demo.onnx", "made").batches == 4


def test_ranges_that_the_user_knows_hold() -> None:
    assert run("inputs", "demo.onnx", "-o", "x.npz", "--input-range", "image=0:1") == 0
    image = read_batch("x.npz")["image"]
    assert (image.min() >= 0, image.max() <= 1, image.max() > 0.5) == (True, True, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "x.npz", "--batches", "2"), "an .npz file is one batch; found --batches 2"),
        (("-o", "demo.onnx"), "are written as .npz; expected NAME.npz or a folder"),
        (("-o", "mine"), "the folder holds other data.*found real.npz"),
        (("-o", "x.npz", "--input-range", "q=0:1"), "names no input of the model; found 'q'"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine").mkdir()
    np.savez("mine/real.npz", image=np.zeros(1))
    assert run("inputs", "demo.onnx", *arguments) == 2
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(capsys.readouterr().err)
    assert sorted(p.name for p in Path().rglob("*.npz")) == ["real.npz"]


def test_the_demo_writes_its_model_and_data_and_shows_no_error_that_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    assert run("demo", "--folder", "demo") == 0
    assert sorted(p.name for p in Path("demo").iterdir()) == [
        "demo.float16.onnx",
        "demo.npz",
        "demo.onnx",
    ]
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("Passed on ") for line in lines)
    monkeypatch.chdir("demo")
    assert run("verify", "demo.onnx", "demo.float16.onnx", "--data", "demo.npz") == 0
