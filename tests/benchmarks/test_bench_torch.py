"""Networks of PyTorch's exporters have its gradients and its losses."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
GRADIENT, LOSSES = 1e-4, 1e-3
"""The largest errors: of a first gradient, and of the losses of 20 steps."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Let exporters log nothing."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.filterwarnings("ignore")  # the exporters' own, by the hundred
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize(
    "network",
    [
        *("ResNet", "MobileNetV3", "ConvNeXt", "ViT", "BERT", "GPT-2", "LSTM", "GRU", "UNet"),
        *("MLP-Mixer", "DLRM", "VAE", "audio encoder"),
    ],
)
def test_gradients_and_losses_are_those_of_pytorch(
    network: str, exporter: str, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    import bench_torch

    torch.set_num_threads(1)
    row = bench_torch.compare(network, exporter, tmp_path)
    assert row["gradient"] <= GRADIENT
    assert max(row[optimizer] for optimizer in bench_torch.OPTIMIZERS) <= LOSSES
