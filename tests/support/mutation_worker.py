"""Runs one mutant after another, as a process of its own: what kills it kills no test.

Finds the models as files in the folder that its argument names. Reads lines "model seed" and
answers each with a line of JSON: {"outcome", "seconds", "trace"}.
"""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import mutations
import onnx

import amp_rewrite as amp
from amp_rewrite.oplists import OpLists, load_lists
from amp_rewrite.train.step.step import read_step

BUDGET = 1 << 30
"""Bytes that the address space may grow by."""

PRECISIONS = ("float16", "bfloat16")
TARGETS = ("schema", "cuda")


@cache
def lists_of(precision: str) -> OpLists:
    return load_lists(None, precision=precision, target="cuda")


def mutant(original: bytes, name: str, seed: int) -> bytes:
    """Return the content of a file: always the same one for a model and a seed."""
    rng = random.Random(f"{name} {seed}")
    proto = onnx.ModelProto.FromString(original)
    mutations.mutate(rng, proto)
    content = proto.SerializeToString()
    return mutations.change_bytes(rng, content) if rng.random() < 0.05 else content


def convert(content: bytes, seed: int, folder: Path) -> None:
    """Do what `amp-rewrite convert` and `explain` do, with an option or two drawn by the seed."""
    path = folder / "mutant.onnx"
    path.write_bytes(content)
    precision, target = PRECISIONS[seed % 2], TARGETS[seed // 2 % 2]
    result = amp.rewrite(
        amp.load(path) if seed % 3 else path,
        precision=precision,
        target=target,
        lists=lists_of(precision),
        inline_functions=seed % 5 == 0,
        keep_io_types=seed % 7 != 0,
        weights="cast" if seed % 11 == 0 else "convert",
    )
    report = result.report
    assert report.to_json()
    if report.nodes:
        amp.explain(report, report.nodes[seed % len(report.nodes)].name)
    amp.to_proto(result.model).SerializeToString()
    amp.save(result.model, folder / "rewritten.onnx")


def read_as_step(content: bytes) -> None:
    step = read_step(content)
    step.initial()
    step.original()
    step.cut(step.info.fetches)


def run(original: bytes, name: str, seed: int, folder: Path) -> str:
    """Return "accepted" or "refused"; anything but an AmpError comes out."""
    content = mutant(original, name, seed)
    outcome = "accepted"
    jobs: list[Any] = [lambda: convert(content, seed, folder)]
    if name.endswith("step"):
        jobs.append(lambda: read_as_step(content))
    for job in jobs:
        try:
            job()
        except amp.AmpError as error:
            if "\n" in str(error):
                raise ValueError("an error of several lines") from error
            outcome = "refused"
    return outcome


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BUDGET, used + BUDGET))


def main(models: Path) -> None:
    faulthandler.enable()
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "weights.data").write_bytes(bytes(64))
        originals = {path.stem: path.read_bytes() for path in models.glob("*.onnx")}
        convert(next(iter(originals.values())), 0, folder)  # what is made once does not count
        limit_memory()
        for line in sys.stdin:
            name, seed = line.rstrip("\n").rsplit(" ", 1)
            start = time.monotonic()
            trace = ""
            try:
                outcome = run(originals[name], name, int(seed), folder)
            except BaseException:  # noqa: BLE001 whatever it is, it is the finding
                outcome, trace = "raised", traceback.format_exc()
            seconds = time.monotonic() - start
            answer = {"outcome": outcome, "seconds": seconds, "trace": trace}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
