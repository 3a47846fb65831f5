"""A mixed model as a float32 model that rounds where the mixed one does."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import onnx_ir as ir

from amp_rewrite import dtypes
from amp_rewrite.dtypes import FLOAT32, DType
from amp_rewrite.graph import elements
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES
from amp_rewrite.graph.elements import set_element
from amp_rewrite.graph.infer import Types
from amp_rewrite.graph.io.functions import inline
from amp_rewrite.graph.ports import opset_of, ports_at, schema_variable
from amp_rewrite.graph.traits import Trait, has, operator
from amp_rewrite.numerics.emulate.folded_weights import folded
from amp_rewrite.numerics.emulate.fused_groups import Fused
from amp_rewrite.numerics.emulate.insert import Inserter
from amp_rewrite.numerics.emulate.low_sums import Sums, accumulates_low, accumulation, sums_of
from amp_rewrite.numerics.emulate.node_collector import NodeCollector
from amp_rewrite.numerics.emulate.type_attributes import is_low_tensor, make_float32, widen
from amp_rewrite.numerics.emulate.typed_model import TypedModel
from amp_rewrite.runtimes.model_source import stays_in_files
from amp_rewrite.values.sum_lengths import INNER_SUMS

# operators: what normalizes the sum of its first two inputs.
_OF_TWO = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")


def emulate_typed(
    typed: TypedModel,
    *,
    accumulate_low: Collection[str] | Sums = (),
    keep_io_types: bool = True,
    fused: Fused | None = None,
) -> None:
    """Make a mixed model a float32 one that computes the same, number by number, in place.

    Every value keeps its name; one that was float16 or bfloat16 is float32 and holds only numbers
    of that type. Rounded are, to nearest with ties to even, overflowing to infinity and keeping
    subnormals:

    - weights and constants, in the file: they need no work at run time, but where they stay in
      files (`stays_in_files`), which are not written in float32 then;
    - graph inputs, and every output of an operator that computes new numbers (`is_exact`), by a
      Cast to the 16-bit type and a Cast back. ONNX Runtime keeps such pairs at every optimisation
      level; it drops only the pairs that lose nothing.

    Inside an operator everything is float32: sums accumulate in float32, as on tensor cores, unless
    `accumulate_low` names the operator (low_sums.py). An operator without a schema, or whose schema
    does not admit float32, stays 16-bit between casts. Recurrent operators are one operator: their
    state is rounded at the end only. Values inside `fused` groups are not rounded.

    With `keep_io_types`, 16-bit graph inputs and outputs keep their types; else they are float32.

    Raises:
        OptionError: `accumulate_low` names an operator for which that is not possible, or a
            sequence or an optional is to keep its type.
        GraphError: A model-local function cannot be inlined.
    """
    sums, model = sums_of(accumulate_low), typed.model
    if model.functions:
        inline(model)
        typed = TypedModel(model)  # the functions' bodies have types now
    types = typed.types
    low = low_values(types)
    if low:
        _Emulator(model, types, low, sums, keep_io_types, fused or Fused()).run()


def low_values(types: Types) -> dict[ir.Value | None, DType]:
    """Return the values of a 16-bit type, with it."""
    dtypes_of = {
        value: dtypes.of(elements.element(t) or FLOAT32.number) for value, t in types.items()
    }
    return {value: t for value, t in dtypes_of.items() if t is not None and t is not FLOAT32}


def is_exact(node: ir.Node) -> bool:
    """Return whether a node's float outputs need no rounding where its inputs are rounded."""
    op, attributes = operator(node), node.attributes
    # operators: exact in some modes only; a bound in an attribute is a float32 number.
    if op in ("Clip", "Pad"):
        return not {"min", "max", "value"} & attributes.keys()
    if op == "Dropout":
        return len(node.inputs) < 3 or node.inputs[2] is None  # not in training
    # operators: exact in some modes only.
    if op in ("Resize", "Upsample"):
        return attributes.get_string("mode", "nearest") == "nearest"
    # operators: as above.
    if op in ("ScatterElements", "ScatterND"):
        return attributes.get_string("reduction", "none") in ("none", "max", "min")
    return has(node, Trait.MOVES, Trait.EXACT, Trait.SUBGRAPHS, Trait.HOLDS)


@dataclass
class _Emulator:
    """One run over a model; `low` holds the types from before."""

    model: ir.Model
    types: Types
    low: dict[ir.Value | None, DType]
    sums: Sums
    keep_io_types: bool
    fused: Fused
    kept: set[ir.Value] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Look at the graphs before anything is changed."""
        self.insert = Inserter(self.model)
        self.stays_low = stays_in_files(self.model)
        self.read = {node: tuple(node.inputs) for node in self.model.graph.all_nodes()}

    def run(self) -> None:
        """Round every node's outputs, then the ends of the graph, then change the types."""
        ends = [(self.low.get(v), self.types.get(v, "")) for v in self.model.graph.outputs]
        graphs = [self.model.graph, *self.model.graph.subgraphs()]
        for node in self.read:
            self._node(node)
        for graph in graphs:
            self._initializers(graph)
        for value in self.model.graph.inputs:
            if value in self.low:
                self._input(value)
        for value in self.low:
            if value is not None and value not in self.kept:
                set_element(value, FLOAT32)
        if self.keep_io_types:
            self._outputs(ends)

    def _node(self, node: ir.Node) -> None:
        outputs = [v for v in node.outputs if v.name and v in self.low]
        if not outputs and not any(v in self.low for v in self.read[node]):
            make_float32(node)
            return
        if self._must_stay_low(node):
            self._wrap(node, outputs)
            return
        if node.domain == "" and node.op_type == "Cast":
            self._keep(outputs)
            return
        make_float32(node)
        if is_exact(node):
            return
        if outputs and accumulates_low(node, self.sums):
            opset = opset_of(node, self.model.graph.opset_imports)
            low, names = self.low[outputs[0]], self.insert.names
            self.insert.replace_node(node, *accumulation(node, low, opset, names, self.sums))
            return
        if outputs:
            dtype = self.low[outputs[0]]
            self.insert.put_before(node, _sum_in_front(node, dtype, self.insert.names))
        for value in outputs:
            dtype, fused = self.low[value], self.fused.unrounded.get(value, frozenset())
            rounded = self._folded(node) or value
            is_end = self.insert.is_end(rounded)
            if not fused or is_end or any(user not in fused for user, _ in rounded.uses()):
                self.insert.round(rounded, dtype, but=fused)

    def _folded(self, node: ir.Node) -> ir.Value | None:
        """Put a product in place of a node whose constant is folded into it, and return it."""
        if node not in self.fused.folded:
            return None
        nodes = NodeCollector(node.outputs[0].name or "", self.insert.names)
        result = folded(self.fused.folded[node], nodes)
        if result is not None:
            self.insert.replace_node(node, nodes.made, result)
        return result

    def _must_stay_low(self, node: ir.Node) -> bool:
        """Return whether an operator cannot take float32 instead of the 16-bit type.

        All operators of ai.onnx that take a 16-bit type can.
        """
        if node.domain == "":
            return "sparse_value" in node.attributes
        ports = ports_at(node, self.model.graph.opset_imports)
        if ports.schema is None:
            return True
        names = (*ports.inputs, *ports.outputs)
        for name, value in zip(names, (*self.read[node], *node.outputs), strict=True):
            if value is None or value not in self.low:
                continue
            admitted = ports.schema.variables.get(schema_variable(name), {name})
            if elements.with_element(self.types[value], FLOAT32) not in admitted:
                return True
        return False

    def _wrap(self, node: ir.Node, outputs: list[ir.Value]) -> None:
        """Leave a node 16-bit: cast its inputs to that type and its outputs back."""
        for index, before in enumerate(self.read[node]):
            value = node.inputs[index]
            if before is not None and value is not None and before in self.low:
                low = self.low[before]
                cast = self.insert.cast(value, low, self.insert.names.cast(value.name or "", low))
                node.prepend(cast)
                node.replace_input_with(index, cast.outputs[0])
        self._keep(outputs)

    def _keep(self, outputs: list[ir.Value]) -> None:
        """Leave outputs 16-bit; readers get float32 by a Cast, half of a rounding pair."""
        for value in outputs:
            self.insert.cast_back(value, self.low[value])
            self.kept.add(value)

    def _initializers(self, graph: ir.Graph) -> None:
        for value in list(graph.initializers.values()):
            tensor = value.const_value
            if tensor is None or value not in self.low or self._is_low_input(value):
                continue
            if is_low_tensor(tensor) and not self.stays_low:
                value.const_value = widen(tensor)
            elif is_low_tensor(tensor):
                self.insert.cast_back(value, self.low[value])
                self.kept.add(value)
            else:  # a sparse tensor
                self.insert.convert_input(value, self.types[value], FLOAT32)
                self.kept.add(value)

    def _is_low_input(self, value: ir.Value) -> bool:
        """Return whether an initializer has a 16-bit input that a caller may feed."""
        overridable = self.model.ir_version >= FIRST_IR_WITH_OVERRIDES
        return self.keep_io_types and overridable and value in self.model.graph.inputs

    def _input(self, value: ir.Value) -> None:
        if value.is_initializer() and not self._is_low_input(value):
            return  # a constant
        if self.keep_io_types:
            self.insert.convert_input(value, self.types[value], FLOAT32)
            self.kept.add(value)
        elif self.types[value].startswith("tensor("):
            self.insert.round_input(value, self.low[value])

    def _outputs(self, ends: list[tuple[DType | None, str]]) -> None:
        """Give the graph outputs the types that they had."""
        outputs = self.model.graph.outputs
        narrowed: dict[ir.Value, ir.Value] = {}
        for index, (value, (dtype, type_)) in enumerate(zip(list(outputs), ends, strict=True)):
            if dtype is None or value in self.kept:
                continue
            if value not in narrowed:
                narrowed[value] = self.insert.retype_output(value, type_, dtype)
            outputs[index] = narrowed[value]


def _sum_in_front(node: ir.Node, dtype: DType, names: AddedNames) -> list[ir.Node]:
    """Let a normalization read the sum inside it, which kernels round first, and zeros besides.

    Evidence: minilm_l3_ortfused: error .0073 without, .0085 with.
    """
    if node.domain != "com.microsoft" or node.op_type not in _OF_TWO:
        return []
    terms = [k for k in INNER_SUMS[node.op_type].terms if k < len(node.inputs)]
    present = [value for k in terms if (value := node.inputs[k]) is not None]
    nodes = NodeCollector(node.outputs[0].name or "", names)
    total = present[0]
    for value in present[1:]:
        total = nodes.add("Add", [total, value])
    total = nodes.round(total, dtype)
    node.replace_input_with(0, total)
    node.replace_input_with(1, nodes.add("Sub", [total, total]))
    for index in terms[2:]:
        node.replace_input_with(index, None)
    return nodes.made
