"""The dynamic scale goes where torch.amp.GradScaler's and Keras's go on the same overflows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import amp_rewrite as amp
from amp_rewrite.errors import AmpError
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.optimizers import GradientDescent
from amp_rewrite.training.loss_scaling.loss_scale import get, serialize

Trajectory = list[float]


def grad_scaler(
    sequence: str, scale: float, growth: float, backoff: float, interval: int
) -> Trajectory:
    """Return the scale after each step by the rule that PyTorch documents for GradScaler.

    https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler: a step that is not finite
    multiplies by backoff_factor and counts anew; growth_interval finite steps in a row multiply by
    growth_factor, unless that is not finite in float32. There is no smallest scale.
    """
    found, good = [], 0
    for finite in sequence:
        if finite == "F":
            scale, good = float(np.float32(scale * backoff)), 0
        else:
            good += 1
            if good == interval:
                larger = scale * growth
                fits = larger <= float(np.finfo(np.float32).max)
                scale, good = (float(np.float32(larger)) if fits else scale), 0
        found.append(scale)
    return found


def keras(sequence: str, scale: float, interval: int) -> Trajectory:
    """Return the scale after each step by Keras's DynamicLossScale, whose factors are 2.

    keras/src/optimizers/loss_scale_optimizer.py of Keras 3: a finite step at which the counter is
    interval - 1 doubles, another one counts; one that is not finite halves and counts anew.
    """
    found, counter = [], 0
    for finite in sequence:
        if finite == "F":
            scale, counter = scale / 2, 0
        elif counter == interval - 1:
            scale, counter = scale * 2, 0
        else:
            counter += 1
        found.append(scale)
    return found


def model_of(weight: float) -> ir.Model:
    """Return a model with loss = sum(w * g): what is fed as g is the gradient of w."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[1] g) => (float loss) <float[1] w = {{{weight}}}> {{
        product = Mul(w, g)
        loss = ReduceSum<keepdims = 0>(product)
    }}"""
    return amp.load(onnx.parser.parse_model(text))


def ours(weight: float, sequence: str, loss_scale: amp.LossScale) -> Trajectory:
    """Return the scale after each step of a session."""
    optimizer = amp.LossScaleOptimizer(GradientDescent(0.0), loss_scale)
    found: Trajectory = []
    with amp.TrainingSession(optimizer.minimize(amp.value(model_of(weight), "loss"))) as session:
        for finite in sequence:
            # small enough to stay finite times the largest scale
            gradient = np.array([1e-3 if finite == "T" else np.inf], np.float32)
            session.run({"g": gradient})
            found.append(float(session.read_state("loss_scale/current_loss_scale")))
    return found


ROWS = [(2.0**16, 2.0, 0.5, 3), (2.0**10, 2.0, 0.5, 1), (64.0, 4.0, 0.25, 2), (3.0, 1.5, 0.75, 4)]


def deepspeed(
    sequence: str, scale: float, window: int, shift: int, *, consecutive: bool, late: int = 1
) -> Trajectory:
    """Return the scale after each step by DeepSpeed's DynamicLossScaler.update_scale.

    deepspeed/runtime/fp16/loss_scaler.py: the first `shift` - 1 overflows take one off the
    hysteresis, all others halve. It is refilled when the scale doubles, or, consecutive, by each
    finite step. After an overflow the scale doubles one finite step later than elsewhere (`late`);
    in Megatron-LM, where the class comes from, it does not (0).
    """
    found, left, last = [], shift, -1
    for number, finite in enumerate(sequence):
        if finite == "F":
            last = number
            if left == 1:
                scale = max(scale / 2, 1.0)
            else:
                left -= 1
        else:
            stable = number - last - late
            grows = stable > 0 and stable % window == 0
            left = shift if consecutive or grows else left
            scale = scale * 2 if grows else scale
        found.append(scale)
    return found


def all_trajectories(loss_scale: amp.LossScale, length: int) -> dict[str, Trajectory]:
    """Return the scales after the steps of every sequence, by the nodes that a step has."""
    initial = loss_scale.initial_state()
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 17}, name="scale")
    model = ir.Model(graph, ir_version=8)
    for name, array in {**initial._asdict(), "finite": np.array(True)}.items():
        kind = ir.TensorType(ir.DataType.from_numpy(array.dtype))
        graph.inputs.append(ir.Value(name=name, type=kind, shape=ir.Shape([])))
    b = Builder(model)
    after = loss_scale.update(
        b, amp.loss_scaling.LossScaleState(*graph.inputs[:-1]), graph.inputs[-1]
    )
    graph.outputs.extend(b.op("Identity", v, name=f"next/{i}") for i, v in enumerate(after))
    session = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found: dict[str, tuple[Any, Trajectory]] = {"": (initial, [])}
    for _ in range(length):
        found = {
            sequence + step: (following, [*scales, float(following.current_loss_scale)])
            for sequence, (state, scales) in found.items()
            for step in "TF"
            for following in [type(state)(*session.run(None, feeds_of(state, step)))]
        }
    return {sequence: scales for sequence, (_, scales) in found.items()}


def feeds_of(state: Any, step: str) -> dict[str, Any]:
    return {**state._asdict(), "finite": np.array(step == "T")}


@pytest.mark.parametrize(("scale", "growth", "backoff", "interval"), ROWS)
def test_every_sequence_of_eight_steps_goes_where_gradscaler_goes(
    scale: float, growth: float, backoff: float, interval: int
) -> None:
    ours = amp.DynamicLossScale(scale, interval, growth, backoff_factor=backoff, floor=2.0**-40)
    for sequence, found in all_trajectories(ours, 8).items():
        assert found == grad_scaler(sequence, scale, growth, backoff, interval), sequence


@pytest.mark.parametrize("interval", [1, 2, 3])
def test_every_sequence_of_eight_steps_goes_where_keras_goes(interval: int) -> None:
    ours = amp.DynamicLossScale(16.0, interval, floor=2.0**-40)
    for sequence, found in all_trajectories(ours, 8).items():
        assert found == keras(sequence, 16.0, interval), sequence


@pytest.mark.parametrize("consecutive", [False, True])
@pytest.mark.parametrize(("hysteresis", "window"), [(2, 1000), (3, 1000), (2, 2), (3, 1), (2, 3)])
def test_every_sequence_of_eight_steps_has_deepspeed_s_hysteresis(
    consecutive: bool, hysteresis: int, window: int
) -> None:
    ours = amp.DynamicLossScale(
        64.0, window, hysteresis=hysteresis, consecutive_hysteresis=consecutive
    )
    late = 1 if window == 1000 else 0  # where nothing grows, as DeepSpeed has it
    for sequence, found in all_trajectories(ours, 8).items():
        expected = deepspeed(sequence, 64.0, window, hysteresis, consecutive=consecutive, late=late)
        assert found == expected, sequence


def test_the_hysteresis_is_in_checkpoints(tmp_path: Path) -> None:
    def step() -> amp.optimizers.TrainOp:
        scale = amp.DynamicLossScale(1024.0, 1000, hysteresis=3)
        optimizer = amp.LossScaleOptimizer(GradientDescent(0.0), scale)
        return optimizer.minimize(amp.value(model_of(1.0), "loss"))

    infinite = {"g": np.array([np.inf], np.float32)}
    with amp.TrainingSession(step()) as session:
        session.run(infinite)
        session.save(tmp_path / "one.safetensors")
        assert session.read_state("loss_scale/hysteresis_left") == 2
    with amp.TrainingSession(step()) as session:
        session.restore(tmp_path / "one.safetensors")
        for expected in (1024, 512, 256):
            session.run(infinite)
            assert session.read_state("loss_scale/current_loss_scale") == expected


@pytest.mark.parametrize(
    ("sequence", "arguments", "expected"),
    [
        ("TTTT", {"ceiling": 20.0}, [16, 20, 20, 20]),
        ("FFTFF", {"hysteresis": 2}, [8, 4, 8, 8, 4]),
        ("FFFFF", {"hysteresis": 3}, [8, 8, 4, 2, 1]),
        ("FFTFF", {"hysteresis": 2, "consecutive_hysteresis": True}, [8, 4, 8, 8, 4]),
        ("FTF", {"backoff_factor": 0.25}, [2, 4, 1]),
    ],
)
def test_the_largest_scale_hysteresis_and_backoff_are_kept(
    sequence: str, arguments: Any, expected: Trajectory
) -> None:
    scale = amp.DynamicLossScale(8.0, 1, **arguments)
    assert ours(1.0, sequence, scale) == expected
    again = get(serialize(scale))
    assert again == scale


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backoff_factor": 1.0}, "impossible backoff_factor"),
        ({"backoff_factor": 0}, "impossible backoff_factor"),
        ({"ceiling": 1.0}, "ceiling must not be below initial_loss_scale"),
        ({"ceiling": "x"}, "impossible ceiling; found 'x'"),
        ({"hysteresis": 0}, "impossible hysteresis; found 0"),
        ({"consecutive_hysteresis": "yes"}, "consecutive_hysteresis"),
    ],
)
def test_impossible_parameters_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(AmpError, match=message):
        amp.DynamicLossScale(8.0, **arguments)


@pytest.mark.parametrize("sequence", ["TTTTTTTTTT", "TTFTTFTTFTTF", "TTFFFFFFTTTTTT"])
@pytest.mark.parametrize(("scale", "growth", "backoff", "interval"), ROWS)
def test_the_rule_is_that_of_the_installed_torch(
    sequence: str, scale: float, growth: float, backoff: float, interval: int
) -> None:
    torch: Any = pytest.importorskip("torch")
    scaler = torch.amp.GradScaler(
        "cpu",
        init_scale=scale,
        growth_factor=growth,
        backoff_factor=backoff,
        growth_interval=interval,
    )
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    found: Trajectory = []
    for finite in sequence:
        scaler.scale((weight * (1.0 if finite == "T" else float("inf"))).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        found.append(scaler.get_scale())
    assert found == grad_scaler(sequence, scale, growth, backoff, interval)
