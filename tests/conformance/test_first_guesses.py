"""What a newcomer tries first: it works, or the error has the right name.

Each row is one guess: what is typed, and what comes of it. To add one, add a row. The model,
result, session and trainer that it uses are made anew for each of them, in an empty folder.
"""
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

# Type checkers refuse much of what is tried here.

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import handmade
import model_calls
import numpy as np
import pytest

import amp_rewrite as amp

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
BATCH = handmade.batch(0, 8)


class Tensor:
    """What other packages' tensors are: numbers that DLPack hands over, with a gradient or not."""

    def __init__(self, array: Any, *, with_gradient: bool = False) -> None:
        self._array, self._with_gradient = array, with_gradient

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self._with_gradient:
            raise RuntimeError("can't call numpy() on a tensor that requires grad")
        return self._array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def detach(self) -> Tensor:
        return Tensor(self._array)


class Numbers:
    """What pandas, TensorFlow and JAX have: numbers that numpy takes."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._array


class Dataset:
    """What a `datasets.Dataset` is: columns, which it gives in batches in the format asked for."""

    def __init__(self, **columns: Any) -> None:
        self._columns = columns

    def with_format(self, kind: str) -> Dataset:
        assert kind == "numpy"
        return self

    def __iter__(self) -> Iterator[dict[str, Any]]:
        raise AssertionError("rows one by one are not batches")

    def __getitem__(self, rows: slice) -> dict[str, Any]:
        return {name: column[rows] for name, column in self._columns.items()}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def iter(self, batch_size: int) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self), batch_size):
            yield self[start : start + batch_size]


class Given(SimpleNamespace):
    """What a guess can use; what takes time is made when it is asked for."""

    X, batch, Tensor, Dataset = X, BATCH, Tensor, Dataset

    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._stack = stack

    @property
    def model(self) -> Any:
        return model_calls.model()

    @property
    def loss(self) -> amp.GraphValue:
        return amp.value(amp.load(handmade.model_of(handmade.FORWARD)), "y")

    @property
    def result(self) -> amp.RewriteResult:
        return amp.rewrite(self.model)

    @property
    def conversion(self) -> amp.Conversion:
        return amp.convert(self.model, stress=False)

    @property
    def session(self) -> amp.TrainingSession:
        return self._stack.enter_context(amp.TrainingSession(handmade.train_op()))

    @property
    def trainer(self) -> amp.Trainer:
        return amp.Trainer(self.session)


def saved(**arrays: Any) -> str:
    np.savez("data.npz", **arrays)
    return "data.npz"


def exists(name: str) -> bool:
    return Path(name).is_file()


def computes(precision: str) -> Callable[[Any], bool]:
    return lambda result: result.options.precision == precision and result.changed


def low(result: amp.RewriteResult) -> list[str]:
    """Return the operators of the nodes that compute in low precision."""
    return [
        n.op for n in result.report.nodes if any(v.dtype == "float16" for v in n.variables.values())
    ]


def nothing(found: list[Any]) -> bool:
    return found == []


Guess = Callable[[Any], Any]

WORKS: dict[str, tuple[Guess, Callable[[Any], bool]]] = {
    # models: whatever has one stands for it
    "verify(model, result)": (
        lambda g: amp.verify(g.model, g.result, stress=False),
        lambda report: report.ok,
    ),
    "save(result, path)": (lambda g: amp.save(g.result, "o.onnx"), lambda _: exists("o.onnx")),
    "convert(model, path)": (lambda g: amp.convert(g.model, "o.onnx"), lambda _: exists("o.onnx")),
    "convert(model, output=path)": (
        lambda g: amp.convert(g.model, {"x": g.X}, output="o.onnx"),
        lambda _: exists("o.onnx"),
    ),
    "lists of numbers": (
        lambda g: amp.calibrate(g.model, {"x": g.X.tolist()}),
        lambda found: found.batches == 1,
    ),
    "an object with __array__": (
        lambda g: amp.convert(g.model, data=Numbers(g.X)),
        lambda conversion: conversion.ok,
    ),
    "every result in words": (
        lambda g: [r.to_text() for r in (g.result, g.conversion, g.conversion.verdict)],
        lambda texts: all("\n" in text or text.startswith("Passed") for text in texts),
    ),
    "a calibration as JSON": (
        lambda g: amp.calibrate(g.model, {"x": g.X}).to_dict(),
        lambda found: found["version"] == 1 and "options" not in found and found["ranges"],
    ),
    "what training returns": (
        lambda g: g.trainer.train(g.batch, batch=4),
        lambda history: (
            history.to_text().startswith("2 steps, loss ")
            and history.to_dict()["losses"] == history.losses
        ),
    ),
    "tune(model, data, rtol=)": (
        lambda g: amp.tune(g.model, {"x": g.X}, rtol=0.01),
        lambda tuning: tuning.holds,
    ),
    "explain(result)": (
        lambda g: amp.explain(g.result),
        lambda text: {line.split()[0] for line in text.splitlines()} >= {"node0", "node1"},
    ),
    "session.export into a new folder": (
        lambda g: g.session.export("new/folder/m.onnx"),
        lambda _: exists("new/folder/m.onnx"),
    ),
    "save into a new folder": (
        lambda g: amp.save(g.result, "new/o.onnx"),
        lambda _: exists("new/o.onnx"),
    ),
    "explain(model, node)": (
        lambda g: amp.explain(g.model, "node0", precision="bfloat16"),
        lambda text: text.startswith("node0 (MatMul) becomes bfloat16"),
    ),
    # options
    "precision='fp16'": (lambda g: amp.rewrite(g.model, precision="fp16"), computes("float16")),
    "precision='BF16'": (lambda g: amp.rewrite(g.model, precision="BF16"), computes("bfloat16")),
    "target='CUDA'": (
        lambda g: amp.rewrite(g.model, target="CUDA").options.target,
        lambda target: target == "cuda",
    ),
    "deny_ops=['MatMul']": (lambda g: low(amp.rewrite(g.model, deny_ops=["MatMul"])), nothing),
    "op_block_list=['MatMul']": (
        lambda g: low(amp.rewrite(g.model, op_block_list=["MatMul"])),
        nothing,
    ),
    "node_block_list=['node0']": (
        lambda g: low(amp.rewrite(g.model, node_block_list=["node0"])),
        nothing,
    ),
    # patterns of names
    "deny_nodes=['*0']": (lambda g: low(amp.rewrite(g.model, deny_nodes=["*0"])), nothing),
    "deny_nodes=['a|node0'] (one of them)": (
        lambda g: low(amp.rewrite(g.model, deny_nodes=["nothing|node0"])),
        nothing,
    ),
    "deny_nodes=['re:node[0-9]']": (
        lambda g: low(amp.rewrite(g.model, deny_nodes=["re:node[0-9]"])),
        nothing,
    ),
    # feeds
    "a bare array": (lambda g: amp.verify(g.model, g.result, g.X), lambda r: r.ok),
    "a tensor with a gradient": (
        lambda g: amp.calibrate(g.model, {"x": Tensor(g.X, with_gradient=True)}),
        lambda found: found.batches == 1,
    ),
    "labels besides": (
        lambda g: amp.verify(g.model, g.result, {"x": g.X, "labels": np.ones(2)}),
        lambda r: r.ok,
    ),
    "evaluate on a bare array of float64": (
        lambda g: amp.evaluate(g.model, g.X.astype(np.float64)),
        lambda found: found["y"].shape == (2, 2),
    ),
    "a loader of mappings": (
        lambda g: amp.calibrate(g.model, [{"x": Tensor(g.X), "labels": Tensor(g.X)}] * 3),
        lambda found: found.batches == 3,
    ),
    "a loader of inputs and labels": (
        lambda g: amp.calibrate(g.model, iter([[Tensor(g.X), Tensor(g.X)]] * 3)),
        lambda found: found.batches == 3,
    ),
    "a dataset": (
        lambda g: amp.calibrate(g.model, Dataset(x=np.ones((20, 3)), label=np.ones(20))),
        lambda found: found.batches == 3,
    ),
    "a dataset to train on": (
        lambda g: g.trainer.train(Dataset(**g.batch).iter(4)),
        lambda history: len(history.losses) == 2,
    ),
    "float64 for a step": (
        lambda g: g.session.run({n: a.astype(np.float64) for n, a in g.batch.items()}),
        lambda found: found["loss"] > 0,
    ),
    "tensors for a step": (
        lambda g: g.session.run({name: Tensor(array) for name, array in g.batch.items()}),
        lambda found: found["loss"] > 0,
    ),
}

ERRORS: dict[str, tuple[Guess, type[Exception], str]] = {
    "dtype=": (
        lambda g: amp.rewrite(g.model, dtype="float16"),
        amp.AmpError,
        "found dtype; expected 'precision'",
    ),
    "deny_op= beside other arguments": (
        lambda g: amp.convert(g.model, rtol=0.01, deny_op=["MatMul"]),
        TypeError,
        r"^convert\(\): unknown keyword; found deny_op; expected 'deny_ops'",
    ),
    "RewriteOptions(dtype=)": (
        lambda g: amp.RewriteOptions(dtype="float16"),
        TypeError,
        r"^RewriteOptions\(\): unknown keyword; found dtype; expected 'precision'",
    ),
    "convert(verify=True)": (
        lambda g: amp.convert(g.model, verify=True),
        amp.AmpError,
        "found verify; convert always verifies",
    ),
    "result.save(progres=)": (
        lambda g: g.conversion.save("o.onnx", progres=print),
        amp.AmpError,
        r"^Conversion.save\(\): unknown keyword; found progres; expected 'progress'",
    ),
    "train(batch_size=)": (
        lambda g: g.trainer.train(g.batch, batch_size=4),
        amp.AmpError,
        r"^Trainer.train\(\): unknown keyword; found batch_size; expected 'batch'",
    ),
    "TrainingSession(learning_rate=)": (
        lambda g: amp.TrainingSession(handmade.train_op(), learning_rate=0.1),
        amp.AmpError,
        r"found learning_rate; the optimizer takes it",
    ),
    "minimize(params=)": (
        lambda g: amp.optimizers.Adam().minimize(g.loss, params=["w"]),
        amp.AmpError,
        r"^Optimizer.minimize\(\): unknown keyword; found params; expected 'var_list'",
    ),
    "explain(after=)": (
        lambda g: amp.explain(g.model, "node0", after="deny"),
        amp.AmpError,
        "unknown keyword; found after; removed: explain says of each node",
    ),
    "rewrite(store=)": (
        lambda g: amp.rewrite(g.model, store="half"),
        amp.AmpError,
        "found store; removed: tables of embeddings are stored in 16 bits",
    ),
    "amp.run": (lambda g: amp.run, AttributeError, r"use evaluate\(model, feeds\)"),
    "evaluate(model, path)": (
        lambda g: amp.evaluate(g.model, "data.npz"),
        amp.AmpError,
        r"not a batch; found str; .*; dict\(numpy.load\(FILE\)\)",
    ),
    "amp.convrt": (lambda g: amp.convrt, AttributeError, "did you mean 'convert' or"),
    "amp.AdamW": (lambda g: amp.AdamW, AttributeError, "did you mean 'optimizers.AdamW' or"),
    "optimizers.Adamw": (
        lambda g: amp.optimizers.Adamw,
        AttributeError,
        "no attribute 'Adamw'; did you mean 'AdamW' or",
    ),
    "result.reprot": (lambda g: g.result.reprot, AttributeError, r"did you mean 'report'"),
    "session.fit()": (
        lambda g: g.session.fit(g.batch),
        AttributeError,
        r"no attribute 'fit'; use Trainer\(session\).train\(data, epochs=...\)",
    ),
    "session.lr = 0.1": (
        lambda g: setattr(g.session, "lr", 0.1),
        AttributeError,
        "no attribute 'lr'; use learning_rate",
    ),
    "a list that is too short": (
        lambda g: amp.calibrate(g.model, {"x": [1, 2, 3]}),
        amp.AmpError,
        r"another shape; found \[3\]; expected .*; add the batch axis",
    ),
    "convert(PyTorch module)": (
        lambda g: amp.convert(object()),
        amp.AmpError,
        "torch.onnx.export writes one",
    ),
    "session.stat_dict()": (
        lambda g: g.session.stat_dict(),
        AttributeError,
        "did you mean 'state_dict'",
    ),
    "optimizer.step()": (
        lambda g: amp.optimizers.Adam().step(),
        AttributeError,
        r"no attribute 'step'; use TrainingSession.run\(feeds\)",
    ),
    "losses.cross_entropy": (
        lambda _: amp.losses.cross_entropy,
        AttributeError,
        "no attribute 'cross_entropy'; use losses.softmax_cross_entropy",
    ),
    "Adam(lr=)": (
        lambda _: amp.optimizers.Adam(lr=0.1),
        amp.AmpError,
        "lr is called learning_rate here",
    ),
    "checkpoint='ck.onnx'": (
        lambda g: g.trainer.train(g.batch, checkpoint="ck.onnx"),
        amp.AmpError,
        "the name ends as a model's, which export writes",
    ),
    "bools for a step": (
        lambda g: g.session.run({**g.batch, "x": g.batch["x"] > 0}),
        amp.AmpError,
        r"the feed 'x' .*found bool.*\.astype\('float32'\)",
    ),
    "an old expression": (
        lambda g: amp.rewrite(g.model, deny_nodes=[".*ode0"]),
        amp.AmpError,
        r"found '\.\*ode0'; expected 'node0'.*; write re:\.\*ode0 if it is a regular expression",
    ),
    "deny_ops=['Matmul']": (
        lambda g: amp.rewrite(g.model, deny_ops=["Matmul"]),
        amp.AmpError,
        "found 'Matmul'; expected 'MatMul'",
    ),
    "options for a result": (
        lambda g: amp.explain(g.result, "node0", precision="bfloat16"),
        amp.AmpError,
        "a result was made with its options already",
    ),
    "another shape in a file": (
        lambda g: amp.calibrate(g.model, saved(x=np.ones((2, 4), np.float32))),
        amp.AmpError,
        r"data.npz: the input 'x' has another shape; found \[2, 4\]; expected \[n, 3\]",
    ),
    "GradScaler": (
        lambda g: amp.GradScaler(),
        AttributeError,
        r"no attribute 'GradScaler'; use LossScaleOptimizer\(optimizer\)",
    ),
    "autocast": (
        lambda g: amp.autocast("cuda"),
        AttributeError,
        r"use TrainingSession\(train_op, precision='float16'\)",
    ),
    "GradientTape": (
        lambda g: amp.GradientTape().gradient(None, []),
        AttributeError,
        r"use optimizers.Adam\(\).compute_gradients\(loss\)",
    ),
    "loss.backward()": (
        lambda g: g.loss.backward(),
        AttributeError,
        r"no attribute 'backward'; use optimizer.minimize\(loss\)",
    ),
    "fewer arrays than inputs": (
        lambda g: amp.calibrate(handmade.model_of(handmade.FORWARD), g.X),
        amp.AmpError,
        "fewer arrays than the model has inputs|ONNX Runtime|lack",
    ),
}


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Given]:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore", amp.AmpWarning)
        yield Given(stack)


@pytest.mark.share(2)
@pytest.mark.parametrize("guess", WORKS)
def test_a_first_guess_works(guess: str, given: Given) -> None:
    does, holds = WORKS[guess]
    assert holds(does(given))


@pytest.mark.parametrize("guess", ERRORS)
def test_the_error_of_a_first_guess_has_the_right_name(guess: str, given: Given) -> None:
    does, kind, message = ERRORS[guess]
    with pytest.raises(kind, match=message) as caught:
        does(given)
    assert "\n" not in str(caught.value)
