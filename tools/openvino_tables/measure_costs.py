#!/usr/bin/env python3
"""Write a table of costs of OpenVINO by measuring: lists/costs/openvino_<version>_<isa>.json.

Usage: measure_costs.py [--output DIR] [--threads N] [--sessions N] [--only FAMILY|pairs ...]

It is what `amp-rewrite measure-costs --provider openvino` does, written where the package has its
tables, one for each of the instructions that the target knows. ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
measures a processor with AMX as if it had none. Takes three minutes on two quiet cores; --only
measures some families, or the pairs, and takes the rest from the table that is there. Needs the
extra openvino and a processor with bfloat16.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from amp_rewrite.base.processor import onednn_instructions
from amp_rewrite.errors import AmpError
from amp_rewrite.kernels.cost_files import to_text
from amp_rewrite.numerics.measure.cost_probe import PARTS, measure_costs
from amp_rewrite.runtimes.openvino.package import import_runtime, runtime_version
from amp_rewrite.targets import OPENVINO, find

DEFAULT_OUTPUT = Path(__file__).resolve().parents[2] / "lists" / "costs"


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Write the table of costs of OpenVINO.")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sessions", type=int, default=4, help="how often each model is loaded")
    parser.add_argument("--only", nargs="+", default=[], choices=PARTS)
    options = parser.parse_args()
    there = onednn_instructions()
    names = [name for flag, name in find("openvino").costs.items() if flag in there]
    if not names:
        sys.exit("this processor has no instructions for bfloat16")
    isa = names[0].split("_", 2)[2]
    version = runtime_version(import_runtime()).rpartition(".")[0]
    path = options.output / f"openvino_{version}_{isa}.json"
    before = json.loads(path.read_text("utf-8")) if options.only else None
    try:
        table = measure_costs(
            OPENVINO,
            threads=options.threads,
            sessions=options.sessions,
            only=options.only,
            before=before,
            progress=lambda *at: print(*at),
        )
    except AmpError as error:
        sys.exit(str(error))
    options.output.mkdir(exist_ok=True)
    path.write_text(to_text(table), "utf-8")
    print(path)


if __name__ == "__main__":
    main()
