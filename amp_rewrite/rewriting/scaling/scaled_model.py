"""Carry exponents out: the same nodes, with constants and attributes times powers of two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import onnx_ir as ir
from onnx import numpy_helper

from amp_rewrite.dtypes import FLOAT32, FLOAT64, LOW, DType
from amp_rewrite.graph.added import AddedNames
from amp_rewrite.graph.constants import FIRST_IR_WITH_OVERRIDES, stored_tensor
from amp_rewrite.graph.elements import element
from amp_rewrite.graph.flat import Array, FlatGraph
from amp_rewrite.graph.io.model_files import Place
from amp_rewrite.graph.io.read import read_objects, tensor_of
from amp_rewrite.graph.io.write import ModelWriter
from amp_rewrite.graph.metadata_keys import EXPONENTS_KEY
from amp_rewrite.graph.proto.external import HELD, Held
from amp_rewrite.graph.proto.number_model import number_model
from amp_rewrite.graph.proto.stored import StoredTensor
from amp_rewrite.graph.rounding import to_low
from amp_rewrite.graph.tensors import (
    ConvertedTensor,
    ProtoTensor,
    all_tensors,
    stored,
)
from amp_rewrite.rewriting.scaling.borders import borders
from amp_rewrite.values.scales.call import ScaledAttribute, System
from amp_rewrite.values.scales.equations import MOST_COPIED

_DTYPES: Mapping[int, DType] = {t.number: t for t in (FLOAT32, FLOAT64, *LOW.values())}


def scaled_flat(system: System, exponents: Mapping[int, int], note: str = "") -> FlatGraph:
    """Return a model with its constants times powers of two; the one that was given is left alone.

    Long constants are multiplied when they are read. Where a short one in 16 bits would lose digits
    that count (`_loses_digits`) it is stored as float32, with a Cast behind it.
    """
    return _Scaled(system, exponents).written(note)


class _Scaled:
    def __init__(self, system: System, exponents: Mapping[int, int]) -> None:
        self.system, self.exponents, self.flat = system, exponents, system.flat
        self.model, self.nodes, self.values = read_objects(self.flat)
        self.names = AddedNames((*self.flat.value_names, *self.flat.node_names))
        self.factors = {e for product in system.products for e, _ in product.factors}

    def written(self, note: str) -> FlatGraph:
        for value, slots in self._slots().items():
            self._scale(value, slots)
        for attribute in self.system.attributes:
            exponent = self.exponents.get(attribute.element, 0) * attribute.ratio
            if exponent:
                _scale_attribute(self.nodes[attribute.node], attribute, exponent)
        self._add_borders()
        if note:
            self.model.metadata_props[EXPONENTS_KEY] = note
        called = {self.nodes[n]: name for n, name in enumerate(self.flat.node_names)}
        scaled = self._numbered()
        scaled.keep_names([called.get(n, n.name or "") for n in self.model.graph.all_nodes()])
        return scaled

    def _numbered(self) -> FlatGraph:
        kept = (ir.TensorProtoTensor, ir.ExternalTensor, ir.StringTensor)
        held = [t for t in all_tensors(self.model) if not isinstance(t, kept)]
        files, first = self.flat.files, len(self.flat.files.held)
        places = {id(t): Place(HELD, n, t.nbytes) for n, t in enumerate(held, first)}
        more = [Held(partial(stored, t), partial(_itself, t)) for t in held]
        return number_model(ModelWriter(self.model, places).message(), files.holding(more))

    def _slots(self) -> dict[int, dict[int, int]]:
        """Return, by constant, the exponent at each position in `inputs` that reads it."""
        slots: dict[int, dict[int, int]] = {}
        for read, exponent in self.exponents.items():
            if read not in self.system.constants or not exponent:
                continue
            value = self.system.value_of(read)
            if stored_tensor(self.flat, value) is None:
                continue  # what a ConstantOfShape repeats: an attribute
            uses = [read - self.flat.n_values] if read != value else self.flat.uses(value)
            slots.setdefault(value, {}).update(dict.fromkeys(uses, exponent))
            if read == value and not uses:
                slots[value] = {-1: exponent}
        return slots

    def _scale(self, value: int, slots: Mapping[int, int]) -> None:
        """Scale a constant in its place for one exponent, and in copies for others."""
        groups: dict[int, list[int]] = {}
        for slot in self.flat.uses(value) or [*slots]:
            groups.setdefault(slots.get(slot, 0), []).append(slot)
        in_place = None if 0 in groups else next(iter(groups))
        for exponent, readers in groups.items():
            if exponent:
                self._put(value, exponent, readers, in_place=exponent == in_place)

    def _put(self, value: int, exponent: int, readers: Sequence[int], *, in_place: bool) -> None:
        """Let nodes read a constant times a power of two, in its place or beside it."""
        old, slots = self.values[value], self.flat.uses(value) if in_place else readers
        source, is_wide = self._constant(value, exponent, slots)
        dtype = _DTYPES[source.dtype]
        tensor = _tensor(source, exponent, FLOAT32 if is_wide else dtype)
        node, name = old.producer(), self.flat.value_names[value]
        if in_place and not is_wide:
            if node is None:
                old.const_value = tensor
            else:
                node.attributes.clear()
                node.attributes["value"] = ir.AttrTensor("value", tensor)
            return
        own = self.names.part(name, "Scaled")
        graph = old.graph
        assert isinstance(graph, ir.Graph), "it is defined in a graph"
        if node is None:
            new = self._initializer(graph, own, tensor)
        else:
            made = self._node("Constant", [], own, own, ir.AttrTensor("value", tensor))
            node.append(made)
            new = made.outputs[0]
        if is_wide:
            other = name if in_place else self.names.part(name, "Scaled")
            to = ir.AttrInt64("to", dtype.number)
            cast = self._node("Cast", [new], other, self.names.part(other, "Cast"), to)
            first = new.producer()
            if first is None:
                graph.insert_before(graph[0], cast)
            else:
                first.append(cast)
            new = cast.outputs[0]
        for slot in readers if self.flat.uses(value) else ():
            self.nodes[self.flat.reader(slot)].replace_input_with(self.flat.index(slot), new)
        if in_place:
            self._remove(old, graph)

    def _remove(self, constant: ir.Value, graph: ir.Graph) -> None:
        node = constant.producer()
        if node is not None:
            graph.remove(node, safe=True)
            return
        del graph.initializers[constant.name or ""]
        if constant in graph.inputs:
            graph.inputs.remove(constant)

    def _add_borders(self) -> None:
        """Put a Mul between a value and the nodes of a graph that read it times another power."""
        flat, readers = self.flat, dict[tuple[int, int, ir.Graph], list[int]]()
        for value, read, factor in borders(self.system, self.exponents):
            node = flat.reader(read - flat.n_values)
            graph = self.nodes[node].graph
            assert isinstance(graph, ir.Graph), "only nodes of graphs are scaled"
            readers.setdefault((value, factor, graph), []).append(node)
        for (value, factor, graph), nodes in readers.items():
            name, number = flat.value_names[value], element(self.system.types[value] or "")
            own, scaled = self.names.part(name, "Factor"), self.names.part(name, "Scaled")
            array = np.array(math.ldexp(1.0, factor)).astype(_DTYPES[number or 0].numpy)
            held = self._initializer(graph, own, ProtoTensor(numpy_helper.from_array(array)))
            operands = [self.values[value], held]
            mul = self._node("Mul", operands, scaled, self.names.part(scaled, "Mul"))
            self.nodes[min(nodes)].prepend(mul)
            for node in nodes:
                for index, read in enumerate(flat.inputs_of(node)):
                    if read == value:
                        self.nodes[node].replace_input_with(index, mul.outputs[0])

    def _node(
        self, op: str, inputs: Sequence[ir.Value], output: str, name: str, *attributes: ir.Attr
    ) -> ir.Node:
        return ir.Node("", op, inputs, attributes, outputs=[ir.Value(name=output)], name=name)

    def _initializer(self, graph: ir.Graph, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        type_, shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=name, type=type_, shape=shape, const_value=tensor)
        graph.register_initializer(value)
        if self.flat.ir_version < FIRST_IR_WITH_OVERRIDES:
            graph.inputs.append(value)
        return value

    def _constant(
        self, value: int, exponent: int, slots: Sequence[int]
    ) -> tuple[StoredTensor, bool]:
        """Return a constant, and whether it is short, in 16 bits, and would lose digits so."""
        tensor = stored_tensor(self.flat, value)
        assert tensor is not None, "constants are scaled"
        if tensor.dtype not in {t.number for t in LOW.values()} or tensor.size > MOST_COPIED:
            return tensor, False
        n_values = self.flat.n_values
        is_factor = any(e in self.factors for e in (value, *(n_values + s for s in slots)))
        array = np.asarray(tensor.numpy()).astype(np.float32)
        dtype = _DTYPES[tensor.dtype]
        return tensor, _loses_digits(array, exponent, dtype, is_factor=is_factor)


def _itself(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return tensor


def _tensor(source: StoredTensor, exponent: int, dtype: DType) -> ir.TensorProtocol:
    """Return a constant times a power of two; a long one is multiplied when it is read."""
    if source.size > MOST_COPIED:
        return ConvertedTensor(tensor_of(source), dtype, exponent=exponent)
    array: Array = np.asarray(source.numpy())
    with np.errstate(all="ignore"):
        scaled = np.ldexp(array.astype(_wide(array)), exponent)
    return ProtoTensor(numpy_helper.from_array(to_low(scaled, dtype)))


def _loses_digits(array: Array, exponent: int, dtype: DType, *, is_factor: bool) -> bool:
    """Tell whether a constant in 16 bits loses digits that count when it takes a power of two.

    No digit of a single number may be lost, an epsilon for one. What is added to a scaled value
    becomes subnormal where that value does, and is as exact as it. Of a factor no row and no
    column, along any axis, may lose more than rounding it has cost: half an epsilon of its norm.
    """
    scaled = np.ldexp(np.where(np.isfinite(array), array, 0), exponent)
    with np.errstate(over="ignore"):
        lost = to_low(scaled, dtype).astype(np.float64) - scaled
    if array.size == 1 or not np.isfinite(lost).all():
        return bool(lost.any())
    if not is_factor:
        return False
    wide = scaled.astype(np.float64)
    for axis in range(array.ndim):
        others = tuple(other for other in range(array.ndim) if other != axis)
        of_slices = np.sqrt((lost**2).sum(others)), np.sqrt((wide**2).sum(others))
        if (of_slices[0] > dtype.epsilon / 2 * of_slices[1]).any():
            return True
    return False


def _wide(array: Array) -> type[np.float32 | np.float64]:
    return np.float64 if array.dtype == np.float64 else np.float32


def _scale_attribute(node: ir.Node, scaled: ScaledAttribute, exponent: int) -> None:
    """Multiply an attribute of a node by a power of two; one that is not there has its default."""
    name, held = scaled.name, node.attributes.get(scaled.name)
    if held is not None and held.type is ir.AttributeType.TENSOR:
        array = held.as_tensor().numpy()
        wide = np.ldexp(array.astype(_wide(array)), exponent)
        tensor = ProtoTensor(numpy_helper.from_array(wide.astype(array.dtype)))
        node.attributes[name] = ir.AttrTensor(name, tensor)
    elif held is not None or scaled.default:
        number = float(np.float32(scaled.default)) if held is None else held.as_float()
        node.attributes[name] = ir.AttrFloat32(name, math.ldexp(number, exponent))
