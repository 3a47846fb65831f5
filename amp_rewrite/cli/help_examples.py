"""Examples of every command, which its help ends with."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "convert": (
        "amp-rewrite convert model.onnx -o model.fp16.onnx",
        "amp-rewrite convert model.onnx -o model.bf16.onnx --precision bfloat16",
        "amp-rewrite convert model.onnx -o model.fp16.onnx --data samples/ --rtol 0.01",
        "amp-rewrite convert model.onnx -o kept.fp16.onnx --deny-node 'classifier*'",
        "amp-rewrite convert model.fp16.onnx -o wide.onnx --precision float32",
    ),
    "check": (
        "amp-rewrite check model.fp16.onnx",
        "amp-rewrite check model.fp16.onnx --no-run --report safety.json",
        "amp-rewrite check model.onnx model.fp16.onnx --format github",
    ),
    "repair": (
        "amp-rewrite repair model.fp16.onnx -o fixed.onnx --target webgpu",
        "amp-rewrite repair model.fp16.onnx -o fixed.onnx --data samples/",
    ),
    "explain": (
        "amp-rewrite explain model.onnx attention.softmax",
        "amp-rewrite convert model.onnx --dry-run --html report.html",
    ),
    "inputs": (
        "amp-rewrite inputs model.onnx -o inputs.npz",
        "amp-rewrite inputs model.onnx -o made_up/ --batches 8 --input-range image=0:1",
    ),
    "verify": (
        "amp-rewrite verify model.onnx model.fp16.onnx",
        "amp-rewrite verify model.onnx model.fp16.onnx --data inputs.npz --stress",
    ),
    "calibrate": (
        "amp-rewrite calibrate model.onnx --data samples/ -o ranges.yaml",
        "amp-rewrite convert model.onnx -o model.fp16.onnx --lists ranges.yaml",
    ),
    "localise": ("amp-rewrite localise model.onnx model.fp16.onnx --data inputs.npz",),
    "tune": (
        "amp-rewrite tune model.onnx --data samples/ -o tuned.yaml --rtol 0.01",
        "amp-rewrite convert model.onnx -o model.fp16.onnx --lists tuned.yaml",
    ),
    "check-lists": (
        "amp-rewrite check-lists",
        "amp-rewrite check-lists tuned.yaml --model model.onnx --format json",
    ),
    "run": ("amp-rewrite run model.fp16.onnx --data inputs.npz -o outputs.npz",),
    "train-step": (
        "amp-rewrite train-step digits.onnx -o step.onnx \\\n"
        "  --loss softmax-cross-entropy:logits:t --optimizer adam",
        "amp-rewrite train-step digits.onnx -o fp16_step.onnx \\\n"
        "  --loss softmax-cross-entropy:logits:t --precision float16",
    ),
    "train": (
        "amp-rewrite train step.onnx --data digits_train.npz --epochs 2 -o trained.onnx",
        "amp-rewrite train step.onnx --data digits_train.npz \\\n"
        "  --eval digits_test.npz --checkpoint last.safetensors",
    ),
    "doctor": ("amp-rewrite doctor step.onnx --data digits_train.npz",),
    "inject": ("amp-rewrite inject step.onnx -o scaled.onnx --loss-scale dynamic",),
    "demo": ("amp-rewrite demo", "amp-rewrite demo --folder demo --precision bfloat16"),
}
"""Command -> lines to type. The tests run them one after the other, in this order."""

FIRST = ("amp-rewrite demo", "amp-rewrite convert model.onnx -o model.fp16.onnx")
"""What the list of commands ends with."""


def epilog(examples: tuple[str, ...]) -> str:
    r"""Return what stands behind the options; typer breaks no line of a paragraph after \b."""
    lines = "\n".join(examples).replace("\n", "\n  ")
    return f"\b\nExamples:\n  {lines}"
