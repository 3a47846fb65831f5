"""Time one network in PyTorch: what bench_openvino.py starts in an interpreter that has it.

python benchmarks/torch_jobs.py TOOL NETWORK FEEDS.npz OUTPUTS.npz SECONDS

A network is built again as tools/corpus/export_models.py built it, with the same seed. Prints
milliseconds as JSON, a list with a number for each run, and writes the outputs.
"""

# PyTorch is optional, and not there where types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from processes import THREADS, times_of

LOW = {"torch": False, "torch-autocast": True}
"""Tool -> whether products are bfloat16, as autocast chooses them."""

_CORPUS = Path(__file__).resolve().parent.parent / "tools" / "corpus"


def built(name: str) -> Any:
    """Return the network of a name."""
    sys.path.append(str(_CORPUS))
    language = importlib.import_module("language_networks").LANGUAGE
    tables = language if name in language else importlib.import_module("vision_networks").VISION
    return tables[name]()


def main(tool: str, name: str, feeds: Path, outputs: Path, seconds: float) -> None:
    """Run a network for some seconds."""
    torch.set_num_threads(THREADS)
    network, files = built(name), np.load(feeds)
    given = [torch.from_numpy(files[value]) for value in network.cases["short"]]
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=LOW[tool]):
        found, taken = times_of(lambda: network.module(*given), seconds)
    arrays = [value.float() if value.is_floating_point() else value for value in found]
    np.savez(outputs, **{n: a.numpy() for n, a in zip(network.outputs, arrays, strict=True)})
    print(json.dumps({"ms": taken}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the libraries' own
    files = Path(sys.argv[3]), Path(sys.argv[4])
    main(sys.argv[1], sys.argv[2], *files, float(sys.argv[5]))
