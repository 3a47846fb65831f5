"""A model, and the types of its values, which are found once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import onnx_ir as ir

from amp_rewrite.graph.clone import clone, value_pairs
from amp_rewrite.graph.infer import Types, infer_types
from amp_rewrite.graph.io.load import Source, check, load


@dataclass(frozen=True)
class TypedModel:
    """A model that is read, and changed only when its types are needed no more.

    Attributes:
        model: The model.
        spare: Whether nobody else needs it, so that `own` gives it away instead of a copy.
    """

    model: ir.Model
    spare: bool = False

    @staticmethod
    def of(source: Source) -> TypedModel:
        """Return a checked model: an onnx_ir model itself, for it is not changed.

        Raises:
            AmpError: It is not a valid model.
        """
        if isinstance(source, ir.Model):
            check(source)
            return TypedModel(source)
        return TypedModel(load(source))

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
        return TypedModel(load(source))

    def copy(self) -> TypedModel:
        """Return a copy that is spare, with the types of this one."""
        copied, types = clone(self.model), self.types
        pairs = value_pairs(self.model, copied)
        model = TypedModel(copied, spare=True)
        model.__dict__["types"] = {new: types[old] for old, new in pairs if old in types}
        return model
