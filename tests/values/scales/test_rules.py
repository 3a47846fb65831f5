"""How the rule of each operator ties the exponents of what it reads and makes together."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import onnx.parser
import pytest

from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.infer import infer
from amp_rewrite.rewriting.read_source import read_source
from amp_rewrite.values.scales.call import System
from amp_rewrite.values.scales.equations import scale_system

GIVEN = "float[4,4] x, float[4,4] z, int64[4,4] i, uint8[4,4] n, bool[4,4] t"
FRONT = " ".join(f"{name} = Mul(x, z)" for name in "vpqrs")
"""Values that the model computes, which nothing ties together."""


class Seen(NamedTuple):
    """What is said of the last node.

    Attributes:
        reads: Of each input, the ratio of its exponent to that of v: 0 if it is not scaled; None if
            nothing ties the two, or it has no exponent.
        makes: The same of its outputs.
        system: The whole system.
    """

    reads: list[Fraction | int | None]
    makes: list[Fraction | int | None]
    system: System

    @property
    def products(self) -> list[tuple[str, dict[str, int]]]:
        """The products of the node: the name of the result, and the powers of its factors."""
        system, names = self.system, self.system.flat.value_names
        found = system.products[5:]  # those in front make v, p, q, r, s
        name = {e: names[system.value_of(e)] for e in system.elements()}
        return [(name[p.result], {name[e]: power for e, power in p.factors}) for p in found]

    @property
    def attributes(self) -> dict[str, tuple[float, int]]:
        """The defaults of the attributes that are scaled with v, and how many times."""
        v = self.system.flat.value_names.index("v")
        return {a.name: (a.default, a.ratio) for a in self.system.attributes if a.element == v}


def seen(body: str, opset: int = 18, behind: str = "", ends: str = "float[4,4] e") -> Seen:
    """Return what is said of the last node of a body."""
    text = (
        f'<ir_version: 9, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
        f" m ({GIVEN}) => ({ends}) {{ {FRONT} {body} {behind} e = Neg(x) }}"
    )
    flat = read_source(onnx.parser.parse_model(text), inline_functions=False)
    system = scale_system(flat, infer(flat))
    union, of_v = system.exponents, system.exponents.find(flat.value_names.index("v"))
    node = flat.n_nodes - 2 - behind.count("=")

    def relation(element: int) -> Fraction | int | None:
        root, ratio = union.find(element)
        if root in union.pinned:
            return 0
        return Fraction(ratio) / Fraction(of_v[1]) if root == of_v[0] else None

    def read(slot: int) -> Fraction | int | None:
        own = flat.n_values + slot
        value = flat.inputs[slot]
        return None if value == ABSENT else relation(own if own in system.constants else value)

    slots = range(flat.input_start[node], flat.input_start[node + 1])
    made = flat.outputs_of(node)
    return Seen([read(slot) for slot in slots], [relation(value) for value in made], system)


FREE = None


@pytest.mark.parametrize(
    ("body", "reads", "makes"),
    [
        ("y = Relu(v)", [1], [1]),
        ("y = Add(v, p)", [1, 1], [1]),
        ("y = Sum(v, p, q)", [1, 1, 1], [1]),
        ("y = Concat<axis = 0>(p, v)", [1, 1], [1]),
        ("y = Where(t, v, p)", [FREE, 1, 1], [1]),
        ("y = Gather(v, i)", [1, FREE], [1]),
        ("y, k = TopK(v, i)", [1, FREE], [1, FREE]),
        ("y = Dropout(v, p)", [1, 0], [1]),
        ("y = GridSample(v, p)", [1, 0], [1]),
        ("y = AveragePool<kernel_shape = [1, 1]>(v)", [1], [1]),
        ("y = Sign(v)", [1], [0]),
        ("y = LpNormalization(v)", [1], [0]),
        ("y = IsNaN(v)", [1], [FREE]),
        ("y = ArgMax(v)", [1], [FREE]),
        ("y = Shape(v)", [1], [FREE]),
        ("y = EyeLike(v)", [1], [0]),
        ("y = Softmax(v)", [0], [0]),
        ("y = Exp(v)", [0], [0]),
        ("y = Floor(v)", [0], [0]),
        ("y = SoftmaxCrossEntropyLoss(v, i)", [0, FREE], [0]),
        ("y = OptionalHasElement(v)", [0], [FREE]),
        ("y = Optional(v)", [0], [0]),
        ("y = Cast<to = 7>(v)", [0], [FREE]),
        ("y = Cast<to = 1>(i)", [FREE], [0]),
        ("y = Cast<to = 10>(v)", [1], [1]),
        ("y = CastLike(v, p)", [1, FREE], [1]),
        ("y = CastLike(i, v)", [FREE, 1], [0]),
        ("y = Equal(v, p)", [1, 1], [FREE]),
        ("y = LessOrEqual(v, p)", [1, 1], [FREE]),
        ("y = PRelu(v, p)", [1, 0], [1]),
        ("y = Resize(v, p, q)", [1, 0, 0], [1]),
        ('y = Resize<coordinate_transformation_mode = "tf_crop_and_resize">(v, p, q)',
         [0, 0, 0], [0]),
        ("y = ScatterElements(v, i, p)", [1, FREE, 1], [1]),
        ('y = ScatterND<reduction = "add">(v, i, p)', [1, FREE, 1], [1]),
        ('y = ScatterND<reduction = "mul">(v, i, p)', [0, FREE, 0], [0]),
        ("y = Reciprocal(v)", [1], [-1]),
        ("y = Sqrt(v)", [1], [Fraction(1, 2)]),
        ("y = ReduceSumSquare(v)", [1], [2]),
        ("y = Clip(v, p, q)", [1, 1, 1], [1]),
        ("y = Clip(v, , q)", [1, FREE, 1], [1]),
        ("y = Pad(v, i, p)", [1, FREE, 1], [1]),
        ("y = ThresholdedRelu(v)", [1], [1]),
        ("y = Shrink(v)", [1], [1]),
        ("y = QuantizeLinear(v, p, n)", [1, 1, FREE], [FREE]),
        ("y = DequantizeLinear(n, v)", [FREE, 1], [1]),
        ("y, k, o = DynamicQuantizeLinear(v)", [1], [FREE, 1, FREE]),
        ("y = com.microsoft.DequantizeLinear(n, v, n)", [FREE, 1, FREE], [1]),
        ("y = com.microsoft.QuantizeLinear(v, p, n)", [1, 1, FREE], [FREE]),
        ("y = com.microsoft.GatherBlockQuantized(n, i, v)", [FREE, FREE, 1], [1]),
        ("y = com.microsoft.RotaryEmbedding(v, i, p, q)", [1, FREE, 0, 0], [1]),
        ("y = com.microsoft.BiasAdd(v, p, q)", [1, 1, 1], [1]),
        ("y = com.microsoft.Gelu(v)", [0], [0]),
        ("y = com.microsoft.NoSuchThing(v, p)", [0, 0], [FREE]),
    ],
)  # fmt: skip
def test_which_inputs_and_outputs_have_the_exponent_of_one(
    body: str, reads: list[int | None], makes: list[int | None]
) -> None:
    found = seen(body)
    assert (found.reads, found.makes) == (reads, makes)
    assert found.products == []
