"""Numbers rounded by float32 arithmetic are those that a Cast rounds to."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from amp_rewrite import dtypes
from amp_rewrite.graph.io.load import load
from amp_rewrite.graph.metadata_keys import PART_KEY
from amp_rewrite.graph.step_part import Part
from amp_rewrite.runtimes.engines import open_session
from amp_rewrite.targets import CPU, OPENVINO
from amp_rewrite.training.graph.prepare import record_types
from amp_rewrite.training.step.rounding_by_arithmetic import round_by_arithmetic

TEXT = """<ir_version: 8, opset_import: ["": 18]> g (float[N] x, bool c) => (float[n] y) {{
    y = If(c) <then_branch = t () => (z) {{ low = Cast<to = {to}>(x) z = Cast<to = 1>(low) }},
               else_branch = e () => (w) {{ w = Identity(x) }}> }}"""


def numbers(dtype: dtypes.DType) -> np.ndarray:
    """Return numbers of all sizes that the type has, some of them halfway between two."""
    rng = np.random.default_rng(0)
    least, most = (np.log2(n) for n in (dtype.smallest_subnormal / 4, dtype.max))
    sizes = rng.uniform(max(least, -120), min(most, 100), 200_000)
    spread = np.exp2(sizes) * rng.choice([-1, 1], sizes.size)
    ones = 1 + dtype.epsilon * np.arange(-64, 64) / 4
    halves = dtype.smallest_subnormal * np.arange(-9, 10) / 2
    few = [0.0, -0.0, dtype.max, np.inf, -np.inf, np.nan]
    halves = halves if dtype is dtypes.FLOAT16 else halves[:0]
    return np.concatenate([spread, ones, halves, few]).astype(np.float32)


def rounded_by_hand(dtype: dtypes.DType) -> ir.Model:
    """Return a model that gives what the Cast of an update, inside an If, would round."""
    model = load(parser.parse_model(TEXT.format(to=dtype.number)))
    record_types(model)
    branch = model.graph[0].attributes["then_branch"].as_graph()
    cast, back = branch
    cast.metadata_props[PART_KEY] = Part.UPDATE
    round_by_arithmetic(model, [dtype])
    back.replace_input_with(0, cast.inputs[0])
    branch.remove(cast, safe=True)
    return model


@pytest.mark.parametrize("dtype", dtypes.LOW.values(), ids=list(dtypes.LOW))
@pytest.mark.parametrize("engine", [CPU, pytest.param(OPENVINO, marks=pytest.mark.openvino)])
def test_arithmetic_rounds_to_nearest(
    dtype: dtypes.DType, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == OPENVINO:
        request.getfixturevalue("openvino")
    x = numbers(dtype)
    (found,) = open_session(rounded_by_hand(dtype), providers=[engine]).run(
        {"x": x, "c": np.array(True)}
    )
    expected = x.astype(dtype.numpy).astype(np.float32)
    np.testing.assert_array_equal(found, expected)


def test_other_parts_and_types_are_left() -> None:
    model = load(parser.parse_model(TEXT.format(to=dtypes.BFLOAT16.number)))
    record_types(model)
    cast = model.graph[0].attributes["then_branch"].as_graph()[0]
    x = cast.inputs[0]
    round_by_arithmetic(model, dtypes.LOW.values())
    assert cast.inputs[0] is x
    cast.metadata_props[PART_KEY] = Part.UPDATE
    round_by_arithmetic(model, [dtypes.FLOAT16])
    assert cast.inputs[0] is x
