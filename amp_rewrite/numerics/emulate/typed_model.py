"""A model, and the types of its values, which are inferred once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import onnx_ir as ir

from amp_rewrite.graph.clone import clone, value_pairs
from amp_rewrite.graph.flat import FlatGraph
from amp_rewrite.graph.infer import Types, types_of
from amp_rewrite.graph.io.load import Source, check, load, unwrapped
from amp_rewrite.graph.io.read import Objects, read_objects, shared_objects
from amp_rewrite.graph.io.read_flat import read_flat
from amp_rewrite.graph.io.read_object import infer_types


@dataclass(frozen=True)
class TypedModel:
    """A model that is read, and changed only when its types are needed no more."""

    model: ir.Model
    spare: bool = False
    """Whether nobody else needs it, so that `own` gives it away instead of a copy."""

    @staticmethod
    def of(source: Source) -> TypedModel:
        """Return a checked model: an onnx_ir model itself, for it is not changed.

        Raises:
            AmpError: It is not a valid model.
        """
        model = unwrapped(source)
        if isinstance(model, ir.Model):
            check(model)
            return TypedModel(model)
        flat = model if isinstance(model, FlatGraph) else read_flat(model)
        return TypedModel._read(flat, shared_objects(flat))

    @staticmethod
    def _read(flat: FlatGraph, objects: Objects, *, spare: bool = False) -> TypedModel:
        """Return objects that were read, with the types of the flat graph."""
        model = TypedModel(objects.model, spare)
        pairs = zip(objects.values, types_of(flat), strict=True)
        model.__dict__["types"] = {value: type_ for value, type_ in pairs if type_ is not None}
        return model

    @cached_property
    def types(self) -> Types:
        """Value -> its type."""
        return infer_types(self.model)

    @staticmethod
    def own(source: Source | TypedModel) -> TypedModel:
        """Return a checked model that the caller may change; `types` are those before that.

        Raises:
            AmpError: It is not a valid model.
        """
        if isinstance(source, TypedModel):
            return source if source.spare else source.copy()
        if isinstance(source, FlatGraph):
            return TypedModel._read(source, read_objects(source), spare=True)
        return TypedModel(load(source))

    def copy(self) -> TypedModel:
        """Return a copy that is spare, with the types of this one."""
        copied, types = clone(self.model), self.types
        pairs = value_pairs(self.model, copied)
        model = TypedModel(copied, spare=True)
        model.__dict__["types"] = {new: types[old] for old, new in pairs if old in types}
        return model
