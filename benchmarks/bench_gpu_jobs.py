"""Measure one case of bench_gpu.py; run as a process with the case as JSON.

    python benchmarks/bench_gpu_jobs.py '{"task": "training", "name": "mlp", ...}'

prints the figures as one line of JSON. The device's memory is that of the process as nvidia-smi
accounts it, contexts included; on a CPU it is the peak resident memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

CUDA = "CUDAExecutionProvider"
WARM_UP = 5
Batch = dict[str, Any]


def network(name: str, *, small: bool) -> tuple[Any, Batch]:
    """Return a network of train_models.py and a batch for it."""
    import train_models

    rng = np.random.default_rng(1)

    def labelled(batch: int, *shape: int, classes: int = 10) -> Batch:
        x = rng.normal(size=(batch, *shape)).astype(np.float32)
        return {"x": x, "t": rng.integers(0, classes, batch)}

    if name == "mlp":
        return train_models.mlp(), labelled(64 if small else 1024, 784)
    if name == "digits_cnn":
        return train_models.digits_cnn(), labelled(16 if small else 512, 1, 8, 8)
    if name == "resnet":
        return train_models.resnet(), labelled(4 if small else 256, 3, 32, 32)
    if name == "transformer":
        size, length = (32, 16) if small else (512, 256)
        proto = train_models.transformer(96, length, size, 4, 1 if small else 6)
        numbers = rng.integers(0, 96, (4 if small else 32, length + 1))
        return proto, {"x": numbers[:, :-1].copy(), "t": numbers[:, 1:].copy()}
    shape = {"layers": 1, "size": 32, "heads": 2, "vocabulary": 100, "length": 16} if small else {}
    length = shape.get("length", 128)
    batch = 2 if small else 32
    feeds = {
        "x": rng.integers(0, shape.get("vocabulary", 30522), (batch, length)),
        "attention": np.ones((batch, length), np.float32),
        "t": rng.integers(0, 2, batch),
    }
    return train_models.bert_base(**shape), feeds


def provider_of(case: dict[str, Any]) -> Any:
    """Return the provider, with TF32 on or off."""
    if case["provider"] != CUDA:
        return case["provider"]
    use_tf32 = "1" if case["precision"] == "tf32" else "0"
    return CUDA, {"device_id": str(case["device"]), "use_tf32": use_tf32}


def ours(case: dict[str, Any]) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Return one training step of this package, and facts about it."""
    import amp_rewrite as amp
    from amp_rewrite.rewriting.plan.options import RewriteOptions
    from amp_rewrite.training.step.build_step import step_model
    from amp_rewrite.training.step.precision import in_precision
    from amp_rewrite.training.step.step import whole_step

    proto, batch = network(case["name"], small=case["small"])
    low = case["precision"] if case["precision"] != "tf32" else "float32"
    optimizer: Any = amp.optimizers.Adam(1e-3)
    mode = "if" if case["variant"] == "if" else "select"
    if low == "float16":
        optimizer = amp.LossScaleOptimizer(optimizer, "dynamic", conditional=mode)
    op = optimizer.minimize(amp.value(amp.load(proto), "loss"))
    step = in_precision(whole_step(op), low, RewriteOptions(target="cuda"))
    report = None if step.rewriting is None else step.rewriting.report.summary
    session = amp.TrainingSession(step_model(step), [provider_of(case)])
    facts = {
        "batch": len(next(iter(batch.values()))),
        "casts": None if report is None else report.casts_added,
        "compute_converted": None if report is None else round(report.compute_converted, 4),
        "emulated": low == "bfloat16" and case["provider"] != CUDA,
    }
    return lambda: session.run(batch, "loss")["loss"], facts


def inference(case: dict[str, Any]) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Return one inference of a corpus model, and facts about it."""
    import onnxruntime

    import amp_rewrite as amp
    from amp_rewrite.numerics.inputs.free_sizes import FreeSizes
    from amp_rewrite.numerics.inputs.plausible import PlausibleInputs
    from amp_rewrite.runtimes.ort.device import device_of, load_libraries

    path = Path(case["folder"]) / "models" / f"{case['name']}.onnx"
    model = amp.load(path)
    facts: dict[str, Any] = {"batch": 1, "casts": None}
    feeds = PlausibleInputs.of(model).feeds(FreeSizes(0))
    if case["precision"] in ("float16", "bfloat16"):
        target = "cuda" if case["provider"] == CUDA else "cpu"
        result = amp.rewrite(model, precision=case["precision"], target=target)
        summary = result.report.summary
        model, facts["casts"] = result.model, summary.casts_added
        facts["compute_converted"] = round(summary.compute_converted, 4)
    provider = provider_of(case)
    device = device_of([provider])
    load_libraries(device)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    content = amp.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=[provider])
    if case["provider"] not in session.get_providers():
        raise RuntimeError(f"ONNX Runtime cannot start {case['provider']}")
    binding = session.io_binding()
    for name, array in feeds.items():
        value = onnxruntime.OrtValue.ortvalue_from_numpy(array, device.kind, device.index)
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, device.kind, device.index)
    return lambda: session.run_with_iobinding(binding), facts


def torchs(case: dict[str, Any]) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Return one training step of PyTorch under autocast, and facts about it."""
    import torch  # pyright: ignore[reportMissingImports] it may be another interpreter's
    import train_torch

    proto, batch = network(case["name"], small=case["small"])
    device = f"cuda:{case['device']}" if case["provider"] == CUDA else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = case["precision"] == "tf32"
    torch.backends.cudnn.allow_tf32 = case["precision"] == "tf32"
    weights = on_device(torch, train_torch.weights_of(proto), device)
    adam = torch.optim.Adam(train_torch.parameters(weights), 1e-3)
    low = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(case["precision"])
    kind = device.split(":")[0]
    scaler = torch.amp.GradScaler(kind, enabled=low is torch.float16)
    tensors = {name: torch.from_numpy(np.asarray(a)).to(device) for name, a in batch.items()}
    loss_of = train_torch.LOSSES[case["name"]]
    loss_of = torch.compile(loss_of) if case["tool"] == "compile" else loss_of

    def step() -> float:
        adam.zero_grad()
        with torch.autocast(kind, dtype=low or torch.bfloat16, enabled=low is not None):
            loss = loss_of(weights, *tensors.values())
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
        return loss.item()

    return step, {"batch": len(batch["x"]), "casts": None}


def on_device(torch: Any, weights: dict[str, Any], device: str) -> dict[str, Any]:
    """Return weights on a device, as leaves that gradients arrive at."""
    return {
        name: value.detach().to(device).requires_grad_(value.requires_grad)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in weights.items()
    }


def peak_memory(case: dict[str, Any]) -> float | None:
    """Return the memory of this process in MiB; None if it cannot be told."""
    if case["provider"] != CUDA:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError, ValueError):
        lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        used = [line.split(",") for line in lines.strip().splitlines()]
        own = [float(memory) for pid, memory in used if int(pid) == os.getpid()]
        return own[0] if own else None
    return None


def driver_version() -> str | None:
    """Return the version of the NVIDIA driver; None if it cannot be told."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        found = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        return found.strip().splitlines()[0]
    return None


def main(case: dict[str, Any]) -> dict[str, Any]:
    """Measure a case; return the figures."""
    if case["task"] == "inference":
        step, facts = inference(case)
    else:
        step, facts = ours(case) if case["tool"] == "amp_rewrite" else torchs(case)
    result = [step() for _ in range(min(WARM_UP, case["steps"]))][-1]
    times: list[float] = []
    for _ in range(case["steps"]):
        start = time.perf_counter()
        result = step()
        times.append(time.perf_counter() - start)
    loss = None if result is None else float(result)
    facts |= {"ms": median(times) * 1e3, "best_ms": min(times) * 1e3, "loss": loss}
    return facts | {"peak_mib": peak_memory(case)}


if __name__ == "__main__":
    try:
        print(json.dumps(main(json.loads(sys.argv[1]))))
    except Exception as error:  # noqa: BLE001 the parent reads one line
        sys.exit(" ".join(f"{type(error).__name__}: {error}".split()))
