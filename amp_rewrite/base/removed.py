"""Names that an earlier state had -> what to use now. A row stays for one release."""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {}
"""Command -> the remedy."""

FLAGS: Mapping[str, str] = {
    "--adapters": "a checkpoint has the adapters, and -o merges them into the weights",
    "--cuda-graph": "leave it out: each step is run as usual",
    "--no-train-dropout": "leave it out: Dropout drops in frozen parts too",
    "--recompute": "use smaller batches with --accumulate to need less memory",
    "--train-dropout": "leave it out: Dropout drops in frozen parts too",
}
"""Option of a command -> the remedy."""

ARGUMENTS: Mapping[str, str] = {}
"""Keyword argument of a rewrite in Python -> the remedy."""

NAMES: Mapping[str, str] = {
    "read_training_info": "build a training step with an optimizer's minimize",
    "recompute": "use smaller batches with minimize(loss, accumulate=N) to need less memory",
    "write_training_info": "save the step with build_step and save",
}
"""Public name of `amp_rewrite` -> the remedy."""
