"""Runs one mutant after another, as a process of its own: what kills it kills no test.

Finds the models as files in the folder that its argument names. Reads lines "model seed" and
answers each with a line of JSON: {"outcome", "seconds", "trace"}, in seconds of processor time.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import random
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import mutations
import onnx
from invariants import verify_invariants
from worker_loop import answer_lines

import amp_rewrite as amp
from amp_rewrite.oplists import OpLists, load_lists
from amp_rewrite.training.step.step import read_step

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
    """Do what `amp-rewrite convert` and `explain` do, with options that the seed chooses."""
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


def check_invariants(content: bytes) -> None:
    """Check what tests check of every rewrite: onnx's checker and shape inference see the model."""
    model = amp.load(content)
    result = amp.rewrite(model, target="schema", lists=lists_of("float16"))
    verify_invariants(model, result.model)


def make_trainable(content: bytes) -> None:
    """Do what `amp-rewrite train-step` does: onnx's version converter sees old models."""
    model = amp.load(content)
    output = next(iter(model.graph.outputs), None)
    if output is not None:
        loss = amp.losses.mean_squared_error(model, str(output.name), "target")
        amp.build_step(amp.optimizers.GradientDescent(0.1).minimize(loss))


def read_as_step(content: bytes) -> None:
    step = read_step(content)
    step.initial()
    step.original()
    step.cut(step.info.fetches)


def open_session(content: bytes) -> None:
    amp.TrainingSession(amp.load(content)).close()


def jobs_of(name: str, content: bytes, seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Yield what is done with a mutant: always to convert it, the rest for one in a few seeds."""
    yield lambda: convert(content, seed, folder)
    if seed % 8 == 0:
        yield lambda: check_invariants(content)
        yield lambda: make_trainable(content)
    if name.endswith("step"):
        yield lambda: read_as_step(content)
        if seed % 16 == 0:
            yield lambda: open_session(content)


def run(original: bytes, name: str, seed: int, folder: Path) -> str:
    """Return "accepted" or "refused"; anything but an AmpError comes out."""
    content = mutant(original, name, seed)
    outcome = "accepted"
    for job in jobs_of(name, content, seed, folder):
        try:
            job()
        except amp.AmpError as error:
            if "\n" in str(error):
                raise ValueError("an error of several lines") from error
            outcome = "refused"
    return outcome


def limit_memory() -> None:
    """Let the address space grow by BUDGET from what it is now."""
    used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BUDGET, resource.RLIM_INFINITY))


def main(models: Path) -> None:
    faulthandler.enable()
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", amp.AmpWarning)
    logging.disable()  # onnx_ir reports what shape inference refuses
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "weights.data").write_bytes(bytes(64))
        originals = {path.stem: path.read_bytes() for path in models.glob("*.onnx")}
        convert(next(iter(originals.values())), 0, folder)  # what is made once does not count
        gc.freeze()  # and need not be collected
        answer_lines(lambda name, seed: run(originals[name], name, seed, folder), limit_memory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
