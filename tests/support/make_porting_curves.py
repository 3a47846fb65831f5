"""Train the networks of docs/porting.md in PyTorch, in float32; write their losses as data.

    python tests/support/make_porting_curves.py     needs torch and scikit-learn

The loop in PyTorch with its own AdamW, schedule and clipping; for TensorFlow and Keras:

Momentum with a rate that halves every 30 steps and gradients clipped one by one; Adam with Keras's
epsilon, whose place PyTorch does not have, and gradients clipped together. Both updates are written
out, so that nothing of torch.optim has to agree with TensorFlow.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch  # pyright: ignore[reportMissingImports] the test environment alone has it
from sklearn.datasets import load_digits

FILE = Path(__file__).with_name("porting_curves.json")
STEPS, BATCH = 90, 64


def weights() -> list[torch.Tensor]:
    """Return w1, b1, w2, b2 as docs/porting.md makes them."""
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((64, 32)) / 8, rng.standard_normal((32, 10)) / 6
    arrays = [first, np.zeros(32), second, np.zeros(10)]
    return [torch.tensor(a.astype(np.float32), requires_grad=True) for a in arrays]


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the batches: 64 digits in a row, around the end."""
    images, labels = load_digits(return_X_y=True)
    found = []
    for n in range(STEPS):
        rows = [(n * BATCH + k) % len(images) for k in range(BATCH)]
        x = torch.tensor((images[rows] / 16).astype(np.float32))
        found.append((x, torch.tensor(labels[rows], dtype=torch.int64)))
    return found


def gradients(w: list[torch.Tensor], x: torch.Tensor, t: torch.Tensor) -> tuple[float, list]:
    """Return the loss and its gradients."""
    logits = torch.relu(x @ w[0] + w[1]) @ w[2] + w[3]
    loss = torch.nn.functional.cross_entropy(logits, t)
    return float(loss.detach()), list(torch.autograd.grad(loss, w))


def momentum() -> list[float]:
    """Return the losses of tf.compat.v1.train.MomentumOptimizer."""
    w, losses = weights(), []
    velocity = [torch.zeros_like(v) for v in w]
    for n, (x, t) in enumerate(batches()):
        loss, found = gradients(w, x, t)
        losses.append(loss)
        rate = 0.1 * 0.5 ** (n // 30)
        with torch.no_grad():
            for v, a, g in zip(w, velocity, found, strict=True):
                norm = g.norm()
                a.mul_(0.9).add_(g * 0.5 / torch.maximum(norm, torch.tensor(0.5)))
                v.sub_(rate * a)
    return losses


def adam() -> list[float]:
    """Return the losses of keras.optimizers.Adam."""
    w, losses = weights(), []
    m, s = ([torch.zeros_like(v) for v in w] for _ in range(2))
    for n, (x, t) in enumerate(batches(), 1):
        loss, found = gradients(w, x, t)
        losses.append(loss)
        norm = torch.sqrt(sum((g**2).sum() for g in found))
        factor = 1 / torch.maximum(norm, torch.tensor(1.0))
        rate = 0.005 * (1 - 0.98**n) ** 0.5 / (1 - 0.9**n)
        with torch.no_grad():
            for v, first, second, g in zip(w, m, s, found, strict=True):
                first.mul_(0.9).add_(0.1 * g * factor)
                second.mul_(0.98).add_(0.02 * (g * factor) ** 2)
                v.sub_(rate * first / (second.sqrt() + 1e-7))
    return losses


def adamw() -> list[float]:
    """Return the losses of the PyTorch loop of the page, without its mixed precision."""
    w, losses = weights(), []
    optimizer = torch.optim.AdamW(w, lr=0.01, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 30, 0.5)
    for x, t in batches():
        loss, found = gradients(w, x, t)
        losses.append(loss)
        for v, g in zip(w, found, strict=True):
            v.grad = g
        torch.nn.utils.clip_grad_norm_(w, 1.0)
        optimizer.step()
        schedule.step()
    return losses


def main() -> None:
    """Write the file."""
    curves = {"torch": torch.__version__, "tf1": momentum(), "keras": adam(), "pytorch": adamw()}
    FILE.write_text(json.dumps(curves, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
