"""Does one thing after another with wild models, as a process of its own: a crash ends no test.

Reads lines "job seed" and answers each with a line of JSON, as mutation_worker.py does. "all" does
every job with the model.
"""

from __future__ import annotations

import faulthandler
import logging
import random
import sys
import tempfile
import warnings
from pathlib import Path

import wild_laws
from wild_models.generate import generate
from worker_loop import BrokenLawError, answer_lines

import amp_rewrite as amp


def run(job: str, seed: int, folder: Path) -> str:
    """Do a job, or all; return "accepted".

    Raises:
        BrokenLawError: A law does not hold.
    """
    source = wild_laws.write(generate(seed), folder)
    if source.fault:
        raise BrokenLawError(f"the generator's model is not valid: {source.fault}")
    for name in wild_laws.JOBS if job == "all" else (job,):
        try:
            wild_laws.JOBS[name](source, random.Random(f"{name} {seed}"))
        except amp.AmpError as error:
            raise BrokenLawError(f"{name} refuses: {error}") from error
        except BrokenLawError as error:
            raise BrokenLawError(f"{name}: {error}") from error
    return "accepted"


def main(models: Path) -> None:
    faulthandler.enable()
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", amp.AmpWarning)
    logging.disable()
    with tempfile.TemporaryDirectory(dir=models) as text:
        folder = Path(text)
        answer_lines(lambda job, seed: run(job, seed, folder), lambda: None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
