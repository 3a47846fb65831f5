"""Gives mutants of models to one command after another, as a process of its own.

Reads lines "model seed" and answers each with a line of JSON, as mutation_worker.py does: a command
ends with a result or with one line, leaves no part of a file, and changes no input.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
from mutation_worker import limit_memory, mutant
from rewrite_text import feeds_of

import amp_rewrite as amp
from amp_rewrite.cli.main import main as command_line
from amp_rewrite.graph.io.load import load

STATUSES = (0, 1, 2, 3, 4)
"""What commands leave with; docs/mixed_precision.md lists them."""

PRECISIONS = ("float16", "bfloat16")
TARGETS = ("cuda", "webgpu", "openvino", "cpu", "tensorrt")


class BrokenPromiseError(Exception):
    """A command did what none may do."""


def _pick(seed: int) -> list[str]:
    rng = random.Random(seed)
    target = rng.choice(TARGETS)
    precision = "bfloat16" if target == "openvino" else rng.choice(PRECISIONS)
    precision = "float16" if target == "webgpu" else precision
    return ["--target", target, "--precision", precision]


COMMANDS: dict[str, Callable[[int], list[str]]] = {
    "convert": lambda seed: ["convert", "in.onnx", "-o", "out.onnx", *_pick(seed)],
    "convert strictly": lambda seed: [
        *("convert", "in.onnx", "-o", "out.onnx", "--strict", *_pick(seed))
    ],
    "convert with data": lambda seed: [
        *("convert", "in.onnx", "-o", "out.onnx", "--data", "in.npz", "--budget", "1s"),
        *_pick(seed),
    ],
    "widen": lambda _: ["convert", "in.onnx", "-o", "out.onnx", "--precision", "float32"],
    "check": lambda seed: ["check", "in.onnx", *(["--no-run"] if seed % 2 else [])],
    "repair": lambda seed: ["repair", "in.onnx", "-o", "out.onnx", *_pick(seed)[:2]],
    "verify": lambda seed: [
        "verify",
        *(("in.onnx", "original.onnx") if seed % 2 else ("original.onnx", "in.onnx")),
    ],
    "calibrate": lambda _: ["calibrate", "in.onnx", "--data", "in.npz", "-o", "out.yaml"],
    "tune": lambda _: ["tune", "in.onnx", "--data", "in.npz", "-o", "out.yaml", "--budget", "1s"],
    "convert for a page": lambda seed: [
        *("convert", "in.onnx", "--dry-run", "--html", "out.html", *_pick(seed))
    ],
    "inputs": lambda _: ["inputs", "in.onnx", "-o", "out.npz"],
    "run": lambda _: ["run", "in.onnx", "--data", "in.npz", "--repeat", "1", "-o", "out.npz"],
    "train-step": lambda seed: [
        *("train-step", "in.onnx", "-o", "out.onnx", "--loss"),
        "loss" if seed % 2 else "mean-squared-error:y:target",
    ],
}
"""What is done -> the arguments of the command, by a seed."""


def run(original: bytes, name: str, seed: int, folder: Path) -> str:
    """Give a mutant to a command; return "accepted" or "refused".

    Raises:
        BrokenPromiseError: It did what none may do.
    """
    job = list(COMMANDS)[seed % len(COMMANDS)]
    for path in folder.iterdir():
        path.unlink()
    content = mutant(original, name, seed)
    given = {"in.onnx": content, "original.onnx": original, "weights.data": bytes(64)}
    for file, data in given.items():
        (folder / file).write_bytes(data)
    with warnings.catch_warnings(action="ignore"):
        np.savez(folder / "in.npz", **feeds_of(onnx.ModelProto.FromString(original), seed))  # pyright: ignore[reportArgumentType]
    given["in.npz"] = (folder / "in.npz").read_bytes()
    arguments = COMMANDS[job](seed)
    with _caught(folder) as written:
        status = _status(arguments)
    out, err = written
    said = f"{' '.join(arguments)}: status {status}: "
    _check_words(status, out, err, said)
    _check_files(folder, given, said)
    return "accepted" if status == 0 else "refused"


def _status(arguments: list[str]) -> object:
    try:
        with patch.object(sys, "argv", ["amp-rewrite", *arguments]):
            command_line()
    except SystemExit as leaving:
        return leaving.code
    return 0


@contextmanager
def _caught(folder: Path) -> Iterator[list[str]]:
    """Catch what the process writes to its streams, whatever library does."""
    found: list[str] = []
    before, here = [os.dup(1), os.dup(2)], Path.cwd()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os.chdir(folder)
            yield found
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.chdir(here)
            for number, kept in enumerate(before, 1):
                os.dup2(kept, number)
                os.close(kept)
            for stream in (out, err):
                stream.seek(0)
                found.append(stream.read().decode("utf-8", "replace"))


def _check_words(status: object, out: str, err: str, said: str) -> None:
    lines = [line for line in err.splitlines() if not line.startswith("amp-rewrite: warning:")]
    strange = [line for line in lines if not line.startswith("amp-rewrite: ")]
    if status not in STATUSES or "internal error" in err or strange:
        raise BrokenPromiseError(f"{said}{err[-1500:]}")
    errors = [line for line in lines if not line.startswith("amp-rewrite: --strict: ")]
    if len(errors) > 1 or (status and not (out.strip() or lines)):
        raise BrokenPromiseError(f"{said}{len(errors)} lines: {err[-1500:]}")


def _check_files(folder: Path, given: dict[str, bytes], said: str) -> None:
    for file, data in given.items():
        if (folder / file).read_bytes() != data:
            raise BrokenPromiseError(f"{said}{file} has changed")
    for path in folder.iterdir():
        if path.name in given:
            continue
        if not path.name.startswith("out.") or path.stat().st_size == 0:
            raise BrokenPromiseError(f"{said}left {path.name}")
        if path.name == "out.onnx":
            _check_model(path, said)


def _check_model(path: Path, said: str) -> None:
    try:
        load(path)
    except amp.AmpError as error:
        raise BrokenPromiseError(f"{said}wrote a file that is not a model: {error}") from error


def main(models: Path) -> None:
    faulthandler.enable()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        originals = {path.stem: path.read_bytes() for path in models.glob("*.onnx")}
        name, content = next(iter(originals.items()))
        for seed in range(len(COMMANDS)):  # what is loaded once does not count
            with suppress(BrokenPromiseError):
                run(content, name, seed, folder)
        gc.freeze()
        for line in sys.stdin:
            gc.collect()
            limit_memory()
            name, seed = line.rstrip("\n").rsplit(" ", 1)
            start, trace = time.process_time(), ""
            try:
                outcome = run(originals[name], name, int(seed), folder)
            except BrokenPromiseError as error:
                outcome, trace = "broken", str(error)
            except BaseException:  # noqa: BLE001 whatever it is, it is the finding
                outcome, trace = "raised", traceback.format_exc()
            answer = {
                "outcome": outcome,
                "seconds": time.process_time() - start,
                "trace": trace,
            }
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
