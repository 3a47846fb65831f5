"""The roles of a model's inputs, by what consumes them.

A row number reaches a table, a position the sine of an angle, a mask an addition in front of a
Softmax, an image or a sound the convolution of one, three or four channels. Names decide only
where nothing else does.

Evidence: 14 corpus models take an image, 7 a sound, 2 a mask: without, no stress input is made for
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import onnx_ir as ir

from amp_rewrite.graph.tensors import known_tensor
from amp_rewrite.graph.traits import Trait, has, operator
from amp_rewrite.graph.traverse import ancestors
from amp_rewrite.numerics.emulate.emulated_feeds import FeedSpec
from amp_rewrite.numerics.inputs.consumers import Consumers, moves
from amp_rewrite.numerics.inputs.free_sizes import IMAGE_CHANNELS, is_float
from amp_rewrite.numerics.inputs.scalings import Scaling


class Role(StrEnum):
    """The role of an input."""

    IDS = "ids"
    """Rows of a table, in any order: tokens, classes."""
    POSITIONS = "positions"
    """Integers that count up, or times: what angles or rows of a table are made of."""
    MASK = "mask"
    """The mask of attention: 1 or 0, or what is added to its scores."""
    IMAGE = "image"
    SOUND = "sound"
    STATE = "state"
    """The initial state of a recurrent operator."""
    DATA = "data"
    """Floats of which no more is known."""
    OTHER = "other"
    """Lengths, switches, strings: nothing that could be made larger or later."""


class Scale(StrEnum):
    """Which numbers the pixels of an image are, as far as the model tells."""

    BYTES = "0..255"
    UNIT = "0..1"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class InputRole:
    """The role of one input.

    Attributes:
        limit: The number of rows to choose from, for ids and positions, or a late time; None is
            any number.
        added: For masks: whether it is added to scores, so that 0 lets everything through.
        scale: For images: whether the model normalises bytes or numbers from 0 to 1 itself.
        range: The least and the greatest number that it holds, if the user said so.
    """

    role: Role
    limit: int | None = None
    added: bool = False
    scale: Scale = Scale.UNKNOWN
    range: tuple[float, float] | None = None
    scaling: Scaling | None = None


# operators: what makes an input what it is; each is a form that exporters write
_ANGLES = frozenset({"Sin", "Cos"})
# They look an angle up.
_TIMES = frozenset({"RotaryEmbedding", "com.microsoft::RotaryEmbedding"})
# operators: arithmetic between a position and its angle
_LINEAR = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "MatMul", "Gemm", "Einsum"})
# operators: what is left of a count of seconds is the time of the day
_WRAPPING = frozenset({"Mod", "Floor"})
# operators: by constants they tell a period
_PERIODIC = frozenset({"Mul", "Div", "Mod"})
# operators: the ends of a mask's way
_MASKED = frozenset({"Softmax", "LogSoftmax"})
# Places of inputs that say what attention may look at.
_MASK_INPUTS: Mapping[str, tuple[int, ...]] = {
    "Attention": (3,),
    "com.microsoft::Attention": (3, 5),
    "com.microsoft::MultiHeadAttention": (4, 5),
    "com.microsoft::EmbedLayerNormalization": (7,),
}
# operators: what makes a mask for scores of a mask for tokens, element by element
_ELEMENTWISE = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sign", "Relu", "Clip", "Min", "Max"),
        *("Where", "Not", "And", "Or", "Xor", "Trilu"),
        *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    }
)
# operators: places of inputs that are states
_STATES: Mapping[str, tuple[int, ...]] = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
# operators: what stands between an image, or filters, and a convolution and means the same numbers
_CONVERSIONS = frozenset({"Cast", "Identity", "QuantizeLinear", "DequantizeLinear"})
# operators: how models normalise images
_NORMALISING = frozenset({"Add", "Sub", "Mul", "Div"})
# operators: of these, what changes the scale
_SCALING = frozenset({"Mul", "Div"})
# operators: a spectrum is a convolution with waves
_SPECTRA = frozenset({"STFT", "DFT"})

_LATE = 0.9
"""Where in a period the time is late: at its end rounded constants begin the next one."""

LATEST_TIME = 1000
"""The last step of a diffusion, where a time is fed as a float."""

_BYTE_FACTOR = 1 / 16
"""The largest factor of bytes: 1/255, 1/58 (a standard deviation)."""


def roles_of(
    model: ir.Model, specs: Mapping[str, FeedSpec], limits: Mapping[str, int]
) -> dict[str, InputRole]:
    """Return the roles of inputs by name."""
    consumers = Consumers(model)
    inputs = {value.name: value for value in model.graph.inputs}
    return {
        name: _role(consumers, inputs[name], spec, limits.get(name)) for name, spec in specs.items()
    }


def _role(consumers: Consumers, value: ir.Value, spec: FeedSpec, limit: int | None) -> InputRole:
    if not spec.is_tensor or spec.shape is None or spec.dtype is None:
        return InputRole(Role.OTHER)
    if is_float(spec):
        return _float_role(consumers, value, spec)
    if spec.dtype.kind == "b":
        return InputRole(Role.MASK if _is_mask(consumers, value) else Role.OTHER)
    if spec.dtype.kind not in "iu":
        return InputRole(Role.OTHER)
    picture = _picture(consumers, value, spec)
    if picture is not None:
        return replace(picture, scale=Scale.BYTES)
    name = spec.name.lower()
    if limit is not None:
        uses = consumers.uses(value, moves)
        counts = any(operator(node) in _TIMES for node, _ in uses) or "position" in name
        return InputRole(Role.POSITIONS if counts else Role.IDS, limit)
    late = _late_time(consumers, value)
    if late is not None:
        return InputRole(Role.POSITIONS, late or None)
    if _is_mask(consumers, value) or "mask" in name:
        return InputRole(Role.MASK)
    return InputRole(Role.POSITIONS if "position" in name else Role.OTHER)


def _float_role(consumers: Consumers, value: ir.Value, spec: FeedSpec) -> InputRole:
    shape = spec.shape or ()
    late = _late_time(consumers, value) if all(d == 1 for d in shape[1:]) else None
    if late is not None:  # the time of a diffusion model, or of the day
        return InputRole(Role.POSITIONS, max(late, LATEST_TIME))
    if _is_added_mask(consumers, value):
        return InputRole(Role.MASK, added=True)
    if "mask" in spec.name.lower():
        return InputRole(Role.MASK)
    if any(i in _STATES.get(operator(node), ()) for node, i in consumers.uses(value, moves)):
        return InputRole(Role.STATE)
    return _picture(consumers, value, spec) or InputRole(Role.DATA if shape else Role.OTHER)


def _late_time(consumers: Consumers, value: ir.Value) -> int | None:
    """Return a late time of the longest period that constants give the angle a value becomes.

    It becomes one by moving, converting, linear arithmetic and remainders; None if it does not. Of
    a short period nothing is late: that is 0.
    """
    periods = [0.0]

    def passes(node: ir.Node, index: int) -> bool:
        name = operator(node)
        if name in _PERIODIC and (index == 0 or name == "Mul"):
            other = known_tensor(node.inputs[1 - index])
            number = 0.0 if other is None or other.size != 1 else abs(other.numpy().item())
            if number:
                periods.append(2 * np.pi / number if name == "Mul" else number)
        return moves(node, index) or name in _LINEAR or name in _WRAPPING

    uses = list(consumers.uses(value, passes))
    if not any(operator(node) in _ANGLES for node, _ in uses):
        return None
    late = int(_LATE * max(periods))
    return late if late > LATEST_TIME else 0


def _is_mask(consumers: Consumers, value: ir.Value) -> bool:
    """Tell whether integers or booleans decide elementwise what reaches a Softmax."""
    uses = consumers.uses(value, _keeps_mask)
    return any(
        operator(node) in _MASKED or index in _MASK_INPUTS.get(operator(node), ())
        for node, index in uses
    )


def _is_added_mask(consumers: Consumers, value: ir.Value) -> bool:
    """Tell whether floats are added to products in front of a Softmax."""
    reaches = list(consumers.uses(value, _keeps_mask))
    if any(index in _MASK_INPUTS.get(operator(node), ()) for node, index in reaches):
        return True
    ends = any(operator(node) in _MASKED for node, _ in reaches)
    return ends and any(_adds_to_products(node, index) for node, index in reaches)


def _keeps_mask(node: ir.Node, index: int) -> bool:
    return moves(node, index) or operator(node) in _ELEMENTWISE


def _adds_to_products(node: ir.Node, index: int) -> bool:
    if operator(node) != "Add":
        return False
    other = node.inputs[1 - index]
    return other is not None and any(has(n, Trait.CONTRACTS) for n in ancestors([other]))


def _picture(consumers: Consumers, value: ir.Value, spec: FeedSpec) -> InputRole | None:
    """Return the role of an image or a sound, None for anything else."""
    factors: list[float] = []

    def passes(node: ir.Node, index: int) -> bool:
        if moves(node, index) or (index == 0 and operator(node) in _CONVERSIONS):
            return True
        if operator(node) not in _NORMALISING:
            return False
        other = known_tensor(node.inputs[1 - index])
        if other is not None and operator(node) in _SCALING:
            size = float(np.abs(other.numpy().astype(np.float64)).max(initial=0.0))
            inverse = 1 / size if size else np.inf
            factors.append(size if operator(node) == "Mul" else inverse)
        return other is not None

    uses = consumers.uses(value, passes)
    weights = [w for node, index in uses if index == 0 and (w := _filters(node)) is not None]
    if not weights:
        return None
    shape = list(spec.shape or ())
    is_batch = len(shape) > 1 and not isinstance(shape[0], int)
    long_axes = sum(length != 1 for length in shape[1 if is_batch else 0 :])
    # filters of one channel along one axis
    if long_axes == 1 and any(
        not w or (w[1] == 1 and sum(d > 1 for d in w[2:]) <= 1) for w in weights
    ):
        return InputRole(Role.SOUND)
    takes_images = any(len(w) == 4 and w[1] in IMAGE_CHANNELS for w in weights)
    if len(shape) not in (3, 4) or not takes_images:
        return None
    scale = Scale.UNKNOWN
    if factors:
        scale = Scale.BYTES if min(factors) <= _BYTE_FACTOR else Scale.UNIT
    return InputRole(Role.IMAGE, scale=scale)


def _filters(node: ir.Node) -> tuple[int, ...] | None:
    """Return the shape of a convolution's filters, () for a Fourier transform, or None."""
    if operator(node) in _SPECTRA:
        return ()
    if operator(node) != "Conv":
        return None
    weight = node.inputs[1]
    producer = None if weight is None else weight.producer()
    while producer is not None and operator(producer) in _CONVERSIONS:
        weight = producer.inputs[0]
        producer = None if weight is None else weight.producer()
    if producer is not None and operator(producer) == "ConstantOfShape":
        shape = known_tensor(producer.inputs[0])
        return None if shape is None else tuple(int(n) for n in shape.numpy())
    tensor = known_tensor(weight)
    return None if tensor is None else tuple(tensor.shape.numpy())
