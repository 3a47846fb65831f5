"""Low-rank adapters in files of their own, laid out as PEFT does.

https://huggingface.co/docs/peft/main/en/developer_guides/checkpoint
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amp_rewrite.errors import OptionError, SaveError
from amp_rewrite.graph.io.atomic import Replacement, check_target, writing
from amp_rewrite.graph.io.paths import path_text
from amp_rewrite.training.graph.adapter import Adapter
from amp_rewrite.training.session.checkpoint import write_tensors

Array = np.ndarray[Any, Any]

TENSORS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_PREFIX = "base_model.model"


def write_adapters(
    folder: str | os.PathLike[str], adapters: Sequence[Adapter], states: Mapping[str, Array]
) -> None:
    """Write adapters into a folder, which is made if it is missing, both files or none.

    Raises:
        OptionError: There are no adapters.
        SaveError: The files cannot be written; existing ones stay as they were.
    """
    if not adapters:
        raise OptionError(
            "the step has no adapters",
            remedy="add them with amp_rewrite.lora before minimize, or use export",
        )
    target = os.path.abspath(path_text(folder, SaveError))
    with writing("adapters", target):
        os.makedirs(target, exist_ok=True)
        for name in (TENSORS, CONFIG):
            check_target(target, name)
        with Replacement(target, TENSORS) as tensors, Replacement(target, CONFIG) as config:
            write_tensors(tensors.file, _tensors(adapters, states), {"format": "pt"})
            config.file.write(json.dumps(_config(adapters), indent=2).encode())
            tensors.commit(TENSORS)
            config.commit(CONFIG)


def _tensors(adapters: Sequence[Adapter], states: Mapping[str, Array]) -> dict[str, Array]:
    """Return PEFT's names -> A as (rank, in) and B as (out, rank)."""
    tensors: dict[str, Array] = {}
    for adapter in adapters:
        stem = f"{_PREFIX}.{adapter.module}"
        tensors[f"{stem}.lora_A.weight"] = states[adapter.a].T
        tensors[f"{stem}.lora_B.weight"] = states[adapter.b].T
    return tensors


def _config(adapters: Sequence[Adapter]) -> dict[str, Any]:
    """Return what PEFT's LoraConfig reads; what differs between modules stands in patterns."""
    first = adapters[0]
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": first.rank,
        "lora_alpha": first.alpha,
        "lora_dropout": first.dropout,
        "bias": "none",
        "fan_in_fan_out": False,
        "target_modules": [adapter.module for adapter in adapters],
        "rank_pattern": {a.module: a.rank for a in adapters if a.rank != first.rank},
        "alpha_pattern": {a.module: a.alpha for a in adapters if a.alpha != first.alpha},
    }
