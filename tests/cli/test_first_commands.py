"""What a newcomer types first: it works, or the error has the command line's words.

Each row is a line, the exit status, and what is said of it. To add one, add a row. The folder has a
model, m.onnx, and data for it, in.npz. First guesses in Python: conformance/test_first_guesses.py.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import model_calls
import numpy as np
import onnx
import pytest

from amp_rewrite.cli.main import main

CONVERT = "convert m.onnx -o o.onnx"
WORKS = {
    f"{CONVERT} --precision fp16": "float16",
    f"{CONVERT} --precision half": "float16",
    f"{CONVERT} --precision BF16": "bfloat16",
    f"{CONVERT} --target CUDA": "target cuda",
    f"{CONVERT} --target Cpu,Cuda": "target cpu",
    f"{CONVERT} --deny-op MatMul": "0 of",
    f"{CONVERT} --deny-op MatMul --deny-op Add": "0 of",
    f"{CONVERT} --deny-op MatMul,Add": "0 of",
    f"{CONVERT} --deny-node '*0'": "wrote o.onnx",
    f"{CONVERT} --deny-node 're:node[0-9]'": "0 of",
    f"{CONVERT} --verify": "Passed on 1 made-up batch",
    "verify m.onnx m.onnx --rtol 1%": r"every element within 0\.01 of",
    f"{CONVERT} --data in.npz": "Passed on 1 batch of your data",
    f"{CONVERT}": r"next: .*\n  amp-rewrite inputs m.onnx -o inputs.npz",
    "convert m.onnx --dry-run": "nothing was written",
    "convert -h": "Usage:",
    "-h": "inputs",
    "inputs m.onnx -o made.npz": "wrote 1 batch to made.npz",
    "inputs m.onnx -o made/": "wrote 4 batches",
    "run m.onnx --data .": "first run",
    "explain m.onnx node0": r"node0 \(MatMul\) becomes float16",
    "explain m.onnx 'node*'": r"node0 \(MatMul\) becomes float16",
    "verify m.onnx m.onnx --data in.npz": "Passed",
}
FAILS = {
    f"{CONVERT} --precision int8": (2, "--precision float16 or --precision bfloat16"),
    f"{CONVERT} --target tpu": (2, "unknown target; found 'tpu'; expected cuda or"),
    f"{CONVERT} --deny-op Matmul": (2, "found 'Matmul'; expected 'MatMul'"),
    f"{CONVERT} --deny-node '*softmax'": (2, r"--deny-node names nothing in the model"),
    f"{CONVERT} --deny-node 're:*softmax'": (2, "not a regular expression.*nothing to repeat"),
    f"{CONVERT} --dtype float16": (2, "No such option"),
    f"{CONVERT} --explain": (2, "--explain; `amp-rewrite explain` is a command"),
    f"{CONVERT} --preserve 'node*'": (2, r"expected 'node0'.*; --deny-node takes patterns"),
    f"{CONVERT} --keep-io foo": (2, r"expected 'x' or 'y'; \* is any text"),
    f"{CONVERT} --deny-op MatMul Add": (2, "repeat it: --deny-op Add"),
    "convert m.onnx --deny-op MatMul Add": (2, "repeat it: --deny-op Add"),
    f"{CONVERT} --target cdua": (2, "schema or any; did you mean 'cuda'"),
    "convert m.onnx --out o.onnx": (2, r"did you mean --output\?"),
    "convert m.onnx -o in.npz/o.onnx": (1, "in.npz: the folder .* a file is in its place"),
    "convert m.onnx -o made.npz": (2, "made.npz: a model is written; expected NAME.onnx"),
    "check m.onnx --rtol 0.01": (2, "--rtol; it is one of convert, repair, verify, tune"),
    "explain m.onnx --after deny": (2, "--after was removed .* explain says of each node why"),
    "check .": (1, "a folder, not a model; name a model: m.onnx"),
    "repair . -o o.onnx": (1, "a folder, not a model; name a model: m.onnx"),
    "inputs m.onnx -o made.csv": (2, "inputs are written as .npz; .*; -o made.npz"),
    "verify m.onnx m.onnx --budget 10m": (2, "argument '10m'; --budget takes no value"),
    "inputs m.onnx in.npz": (2, "'in.npz'; it exists already; -o in.npz replaces it"),
    "verify m.onnx m.onnx in.npz": (2, "name data with --data in.npz"),
    "tune m.onnx --data in.npz -o o.onnx": (2, "an op list is written, no model; .*NAME.yaml"),
    "tune m.onnx -o l.yaml": (2, "`amp-rewrite inputs MODEL -o inputs.npz` makes some"),
    "run m.onnx --data in.npz --device cuda": (2, "--provider what runs it"),
    "run m.onnx --data in.npz -o out.json": (2, "outputs are written as .npz"),
    "demo -o d": (2, "-o; --folder FOLDER"),
    "demo --folder in.npz": (1, "in.npz: the folder .* a file is in its place"),
    "check m.onnx --fix": (2, "--fix; `amp-rewrite repair` does"),
    "train-step m.onnx --epochs 2": (2, "`amp-rewrite train` trains the step"),
    "convert M.onnx -o o.onnx": (1, "cannot be read; .*; did you mean 'm.onnx'"),
    f"{CONVERT} --lists float16": (1, "built-in lists: float16_cpu,"),
    "localise m.onnx --rtol 1": (2, "--rtol; --tolerance is the error"),
    "localise m.onnx --metric cosine": (2, "--metric; --tolerance is the error"),
    "run m.onnx --data in.npz --provider openvion": (2, "did you mean 'openvino'"),
    "train s.onnx --data in.npz --lr 1": (2, "--lr; --learning-rate RATE"),
    "verify m.onnx m.onnx --data in.npz wide.npz": (2, "repeat it: --data wide.npz"),
    "convert m.onnx": (2, "missing -o OUTPUT; name the file or the new folder to write"),
    "convert m.onnx -o m.onnx": (1, "the output is the input"),
    "convert none.onnx -o o.onnx": (1, "none.onnx: the file cannot be read; found No such file"),
    "convert in.npz -o o.onnx": (1, "not an ONNX model; found"),
    "explain m.onnx nod": (2, "found 'nod'; expected 'node0'"),
    "explain m.onnx 'nod.*x'": (2, r"found 'nod.\*x'.*write re:nod.\*x if"),
    "verify m.onnx m.onnx --data wide.npz": (
        1,
        r"wide.npz: the input 'x' has another shape; found \[2, 4\]; expected \[n, 3\]",
    ),
    "verify m.onnx m.onnx --data none.npz": (1, "none.npz: no such data"),
    "convrt m.onnx": (2, "No such command"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(model_calls.model(), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3))
    np.savez(tmp_path / "wide.npz", x=np.ones((2, 4), np.float32))
    monkeypatch.chdir(tmp_path)


def typed(line: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(shlex.split(line))
    return int(left.value.code or 0)


@pytest.mark.share(2)
@pytest.mark.parametrize("line", WORKS)
@pytest.mark.filterwarnings("ignore::amp_rewrite.AmpWarning")
def test_a_first_command_works(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(line) == 0
    assert re.search(WORKS[line], capsys.readouterr().out)


@pytest.mark.parametrize("line", FAILS)
def test_the_error_of_a_first_command_has_its_words(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = FAILS[line]
    before = sorted(Path().iterdir())
    assert typed(line) == status
    captured = capsys.readouterr()
    assert re.search(said, captured.err), captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert sorted(Path().iterdir()) == before
