"""Time one model on one engine: what bench_openvino.py starts, a process each.

python benchmarks/openvino_jobs.py TOOL MODEL FEEDS.npz OUTPUTS.npz SECONDS

Prints milliseconds as JSON, a list with a number for each run, and writes the outputs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
from processes import THREADS, times_of

from amp_rewrite.runtimes.engines import open_session
from amp_rewrite.runtimes.openvino.compiled_model import HINT
from amp_rewrite.runtimes.session import Provider
from amp_rewrite.targets import CPU, OPENVINO

ENGINES: dict[str, Provider] = {
    "float32": OPENVINO,
    "amp_rewrite": OPENVINO,
    "hint": (OPENVINO, {HINT: "bf16"}),
    "onnxruntime": CPU,
}
"""Tool -> what runs its model; OpenVINO computes in the types of the file unless told otherwise."""


def main(tool: str, model: Path, feeds: Path, outputs: Path, seconds: float) -> None:
    """Run a model for some seconds."""
    given = dict(np.load(feeds))
    session = open_session(ir.load(model), providers=[ENGINES[tool]], threads=THREADS)
    found, taken = times_of(lambda: session.run(given), seconds)
    np.savez(outputs, **dict(zip(session.outputs, found, strict=True)))
    print(json.dumps({"ms": taken}))


if __name__ == "__main__":
    model, feeds, outputs = map(Path, sys.argv[2:5])
    main(sys.argv[1], model, feeds, outputs, float(sys.argv[5]))
