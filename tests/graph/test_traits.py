"""The table of operator traits: who has a row, and whether what the rows promise is so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from backend_cases import all_cases
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeImplementationError

from amp_rewrite.graph import traits
from amp_rewrite.graph.flat import Operator
from amp_rewrite.graph.schemas import LATER
from amp_rewrite.graph.traits import TABLE, Row, Trait, has, having, operator, row_of
from amp_rewrite.values.counts.count_rules import rule_of

Arrays = list[np.ndarray]
Run = Callable[[Arrays], Arrays]

TRAINING = ("Dropout",)
"""Operators whose cases draw random numbers."""


def schemas() -> list[onnx.defs.OpSchema]:
    return [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""]


def test_every_row_is_that_of_an_operator():
    runtime = {"SimplifiedLayerNormalization"}  # ONNX Runtime has it in this domain
    names = {s.name for s in schemas()} | LATER.keys() | runtime
    assert {name for name in TABLE if "::" not in name} <= names


def test_no_operator_has_two_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(traits, "_CONTRIBUTED", [("Abs Abs", Row())])
    with pytest.raises(ValueError, match="two rows"):
        traits._table()


def test_an_operator_of_another_domain_is_another_operator():
    ours, theirs = (ir.Node(d, "GatherND", [], num_outputs=1) for d in ("", "com.microsoft"))
    assert (operator(ours), operator(theirs)) == ("GatherND", "com.microsoft::GatherND")
    assert has(ours, Trait.RANDOM, Trait.MOVES)
    assert not has(theirs, *Trait)


def test_nothing_is_known_of_an_operator_without_a_row():
    assert row_of(ir.Node("custom", "Abs", [], num_outputs=1)) == Row()


def test_the_operators_with_graphs_are_those_whose_schema_has_one():
    kind = onnx.defs.OpSchema.AttrType.GRAPH
    assert having(Trait.SUBGRAPHS) == {
        s.name for s in schemas() if any(a.type == kind for a in s.attributes.values())
    }


def admitted_types(schema: onnx.defs.OpSchema) -> Iterator[str]:
    """Yield the types of what goes in and out; onnx 1.20 cannot read a parameter's own."""
    variables = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    for formal in (*schema.inputs, *schema.outputs):
        yield from variables.get(formal.type_str, (formal.type_str,))


def test_every_operator_that_admits_sequences_says_so():
    admitted = {
        schema.name
        for schema in schemas()
        if any(t.startswith("seq(tensor(float") for t in admitted_types(schema))
    }
    handling = having(Trait.SEQUENCE, Trait.PASSES_SEQUENCE, Trait.OPAQUE)
    assert handling - {"BitCast"} == admitted - {"Scan"}


def test_reading_and_writing_sequences_is_handling_them():
    assert having(Trait.READS_SEQUENCE, Trait.WRITES_SEQUENCE) < having(Trait.SEQUENCE)


@cache
def cases() -> list[tuple[str, onnx.ModelProto, Any]]:
    """Return onnx's own cases of one node on float tensors: operator, model, data sets."""
    return [
        (case.model.graph.node[0].op_type, case.model, case.data_sets)
        for case in all_cases()
        if case.model is not None
        and len(case.model.graph.node) == 1
        and case.model.graph.node[0].domain == ""
        and "_expanded" not in case.name
        and all(isinstance(array, np.ndarray) for data in case.data_sets for array in data[0])
    ]


POOLS = ("AveragePool", "LpPool")
"""Of which one case each does: onnx's evaluator takes half a second to pool an image."""


def runs(trait: Trait) -> Iterator[tuple[str, list[int], Arrays, Run]]:
    """Yield, for each case of an operator with a trait: its name, where data are, inputs, run."""
    seen = Counter[str]()
    for name, model, data_sets in cases():
        row = TABLE.get(name, Row())
        if trait not in row.traits or name in TRAINING or (name in POOLS and seen[name] == 1):
            continue
        seen[name] += 1
        inputs = [name for name in model.graph.node[0].input if name]
        present = [i for i, name in enumerate(model.graph.node[0].input) if name]
        data = [k for k, i in enumerate(present) if row.data is None or i in row.data]
        try:
            evaluator = ReferenceEvaluator(model)
        except RuntimeImplementationError:
            continue  # an operator that onnx describes and does not compute

        def run(arrays: Arrays, inputs: Any = inputs, evaluator: Any = evaluator) -> Arrays:
            return evaluator.run(None, dict(zip(inputs, arrays, strict=True)))

        for given, _ in data_sets:
            data = [k for k in data if given[k].dtype == np.float32]
            if data:
                yield name, data, list(given), run


def scaled(arrays: Arrays, which: list[int]) -> Arrays:
    return [2 * array if k in which else array for k, array in enumerate(arrays)]


def floats(arrays: Arrays) -> Arrays:
    return [a for a in arrays if isinstance(a, np.ndarray) and a.dtype == np.float32]


def checked(trait: Trait, check: Callable[[list[int], Arrays, Run], bool]) -> tuple[int, set[str]]:
    """Return how many cases hold, and the operators of which one does not."""
    wrong, count = set[str](), 0
    for name, data, given, run in runs(trait):
        count += 1
        if not check(data, given, run):
            wrong.add(name)
    return count, wrong


def test_what_moves_returns_elements_of_its_data():
    def check(data: list[int], given: Arrays, run: Run) -> bool:
        known = np.concatenate([np.zeros(1, np.float32), *(given[k].ravel() for k in data)])
        return all(np.isin(array, known).all() for array in floats(run(given))[:1])

    count, wrong = checked(Trait.MOVES, check)
    assert count > 100
    assert wrong == set()


def handed_on() -> Iterator[str]:
    """Yield an operator for each element of its inputs that its result has, by onnx's own cases.

    Multiples of 1/64 say nothing: they may be there for other reasons.
    """
    for name, _, data_sets in cases():
        for given, made in data_sets:
            results = floats(made)
            for array in floats(given) if results else ():
                odd = array[np.isfinite(array) & (array * 64 != np.floor(array * 64))]
                for _ in range(np.isin(odd, np.concatenate([r.ravel() for r in results])).sum()):
                    yield name


def test_whatever_hands_on_an_element_hands_on_that_it_is_a_count():
    # One number among thousands may be chance: Erf(0.9) is near 0.8.
    movers = {name for name, count in Counter(handed_on()).items() if count > 1}
    assert len(movers) > 25
    assert {"Dropout", "LeakyRelu", "ScatterElements"} <= movers
    assert {name for name in movers if rule_of(Operator("", name), 1) is None} == set()


def test_what_rearranges_returns_each_element_once():
    def check(data: list[int], given: Arrays, run: Run) -> bool:
        return np.array_equal(np.sort(run(given)[0], axis=None), np.sort(given[0], axis=None))

    count, wrong = checked(Trait.REARRANGES, check)
    assert count > 40
    assert wrong == set()


def test_what_changes_signs_keeps_magnitudes():
    def check(data: list[int], given: Arrays, run: Run) -> bool:
        return np.array_equal(np.abs(run(given)[0]), np.abs(given[0]))

    count, wrong = checked(Trait.CHANGES_SIGN, check)
    assert count >= 3
    assert wrong == set()


def test_what_is_homogeneous_doubles_with_its_data():
    def check(data: list[int], given: Arrays, run: Run) -> bool:
        before, after = (floats(run(arrays))[:1] for arrays in (given, scaled(given, data)))
        return all(
            np.allclose(2 * a, b, rtol=1e-5, atol=1e-5) for a, b in zip(before, after, strict=True)
        )

    count, wrong = checked(Trait.HOMOGENEOUS, check)
    assert count > 180
    assert wrong == set()


def test_what_is_invariant_to_scale_stays_when_its_inputs_double():
    def check(data: list[int], given: Arrays, run: Run) -> bool:
        pairs = zip(run(given), run(scaled(given, data)), strict=True)
        return all(np.array_equal(a, b) for a, b in pairs)

    count, wrong = checked(Trait.SCALE_INVARIANT, check)
    assert count > 20
    assert wrong == set()


def test_what_shows_what_is_not_finite_does():
    def check(data: list[int], given: Arrays, run: Run) -> bool:
        given = [array.copy() for array in given]
        for k in data:
            given[k][...] = np.inf
        with np.errstate(invalid="ignore", over="ignore"):
            found = floats(run(given))
        return all(not np.isfinite(array).any() for array in found)

    count, wrong = checked(Trait.SHOWS_NONFINITE, check)
    assert count > 20
    assert wrong == set()


def test_what_is_exact_returns_float16_numbers_for_float16_numbers():
    def check(data: list[int], given: Arrays, run: Run) -> bool:
        rounded = [
            a.astype(np.float16).astype(a.dtype) if a.dtype == np.float32 else a for a in given
        ]
        found = floats(run(rounded))
        return all(
            np.array_equal(a, a.astype(np.float16).astype(a.dtype), equal_nan=True) for a in found
        )

    count, wrong = checked(Trait.EXACT, check)
    assert count > 40
    assert wrong == set()


def several_inputs(name: str) -> bool:
    return onnx.defs.get_schema(name, onnx.defs.onnx_opset_version()).max_input > 1


@pytest.mark.parametrize("name", sorted(filter(several_inputs, having(Trait.NOT_BROADCAST))))
def test_no_other_input_stretches_the_first(name: str):
    schema = onnx.defs.get_schema(name, onnx.defs.onnx_opset_version())
    first, second = (
        onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, shape)
        for shape in ((1, 3), (5, 3))
    )
    node = onnx.helper.make_node(name, ["a", "b"], ["y"])
    try:
        found = onnx.shape_inference.infer_node_outputs(schema, node, {"a": first, "b": second})
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
        found = {}  # it does not admit such a pair, or needs attributes to
    shapes = [[d.dim_value for d in type_.tensor_type.shape.dim] for type_ in found.values()]
    assert [5, 3] not in shapes
