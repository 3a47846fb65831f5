"""Measure the package against others, side by side in interleaved rounds.

    python benchmarks/bench.py startup                   the command line and a small model
    python benchmarks/bench.py rewrite                   large models and some of the corpus
    python benchmarks/bench.py scaling                   time by nodes, fan-out, weights, depth
    python benchmarks/bench.py numerics                  the corpus in emulated mixed precision
    python benchmarks/bench.py exported                  numbers of exported models, beside others'
    python benchmarks/bench.py judges                    what runtimes make of converted models
    python benchmarks/bench.py train                     training steps against PyTorch eager
    python benchmarks/bench.py torch                     gradients and losses beside PyTorch's
    python benchmarks/bench.py loss-scaling              what a loss scale costs in a step
    python benchmarks/bench.py shards                    steps on several shards, and projections
    python benchmarks/bench.py gpu                       every precision on a GPU, and PyTorch's
    python benchmarks/bench.py openvino                  the corpus in bfloat16 on OpenVINO
    python benchmarks/bench.py convergence               bfloat16 on OpenVINO beside float32
    python benchmarks/bench.py page                      docs/measured.md from benchmarks/results/

Each says with --help what else it takes; --json FILE writes its figures, with the machine and the
versions of the packages.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = {
    "startup": "bench_startup.py",
    "rewrite": "bench_rewrite.py",
    "scaling": "bench_scaling.py",
    "numerics": "bench_numerics.py",
    "exported": "bench_exported.py",
    "judges": "bench_judges.py",
    "train": "bench_train.py",
    "torch": "bench_torch.py",
    "loss-scaling": "bench_loss_scaling.py",
    "shards": "bench_shards.py",
    "gpu": "bench_gpu.py",
    "openvino": "bench_openvino.py",
    "convergence": "bench_convergence.py",
    "page": "write_measured.py",
}


def main(arguments: list[str]) -> int:
    """Run the script of a subcommand with the arguments behind it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=SCRIPTS)
    table = parser.parse_args(arguments[:1]).table
    command = [sys.executable, str(HERE / SCRIPTS[table]), *arguments[1:]]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
