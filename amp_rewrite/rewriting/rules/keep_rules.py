"""Rules that users hand in: which nodes stay float32, and why.

A rule is an object with a method `keep`, which is asked about one node after the other, or a
function under `@keep`, as the built-in rules are, which asks about the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from amp_rewrite.errors import OptionError
from amp_rewrite.graph.flat import ABSENT
from amp_rewrite.graph.modules import module_path
from amp_rewrite.rewriting.paint.paint_pass import PaintPass, Stage

if TYPE_CHECKING:
    from amp_rewrite.graph.dataflow import TypeGraph
    from amp_rewrite.graph.flat import Array


class RuleValue:
    """A value that a node reads or writes, as a rule sees it.

    Attributes:
        name: Its name in the model.
    """

    def __init__(self, graph: TypeGraph, number: int) -> None:
        """Take a value of a model by its number."""
        self._graph, self._number = graph, number
        self.name: str = graph.flat.value_names[number]

    def __repr__(self) -> str:
        """Return the name, element type and shape."""
        return f"<RuleValue {self.name}: {self.dtype} {self.shape}>"

    @property
    def dtype(self) -> str | None:
        """The element type, such as "float32" or "int64"; None if it is not known."""
        from amp_rewrite.dtypes import dtype_name
        from amp_rewrite.graph.elements import element

        number = element(self._graph.types[self._number] or "")
        return None if number is None else dtype_name(number)

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """The lengths of the axes, None for a free one; None if the rank is not known."""
        shape = self._graph.flat.shape(self._number)
        return None if shape is None else tuple(shape)

    @property
    def constant(self) -> Array | None:
        """A copy of the elements, in their shape, if the file stores them; else None."""
        from amp_rewrite.graph.constants import stored_tensor

        tensor = stored_tensor(self._graph.flat, self._number)
        return None if tensor is None else tensor.numpy().copy()

    @property
    def maker(self) -> RuleNode | None:
        """The node that writes it; None for an input of a graph and an initializer."""
        node = self._graph.flat.producer[self._number]
        return None if node == ABSENT else RuleNode(self._graph, node)

    @property
    def readers(self) -> tuple[RuleNode, ...]:
        """The nodes that read it, each once."""
        nodes = dict.fromkeys(self._graph.flat.readers(self._number))
        return tuple(RuleNode(self._graph, node) for node in nodes)


class RuleNode:
    """A node of the float32 model, as a rule sees it.

    Attributes:
        name: Its name; one that had none in the file has the name that reports give it.
        op_type: The operator, such as "MatMul".
        domain: The operator's domain, "" for the one of ONNX.
        module: The module of the framework that it comes from, "encoder.layers.0"; "" if the file
            does not say so.
    """

    def __init__(self, graph: TypeGraph, number: int) -> None:
        """Take a node of a model by its number."""
        self._graph, self._number = graph, number
        called = graph.flat.called(number)
        self.name: str = graph.flat.node_names[number]
        self.op_type: str = called.op_type
        self.domain: str = called.domain
        self.module: str = module_path(graph.flat, number)

    def __repr__(self) -> str:
        """Return the name and the operator."""
        return f"<RuleNode {self.name}: {self.op_type}>"

    @property
    def inputs(self) -> tuple[RuleValue | None, ...]:
        """The values that it reads, by input of the operator; None for one that is left out."""
        read = self._graph.flat.inputs_of(self._number)
        return tuple(None if v == ABSENT else RuleValue(self._graph, v) for v in read)

    @property
    def outputs(self) -> tuple[RuleValue, ...]:
        """The values that it writes, without outputs that are left out."""
        written = self._graph.flat.outputs_of(self._number)
        return tuple(RuleValue(self._graph, v) for v in written if v != ABSENT)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attribute -> a number, a text, a list of them or a tensor; None for a graph."""
        return {name: a.value for name, a in self._graph.flat.attributes(self._number).items()}


class KeepRule(Protocol):
    """A rule of your own about which nodes stay float32: any object with this method.

    An attribute `name` takes the place of the name of its class, and an attribute `reason`, a
    text that follows the name of a node, that of what reports say of all nodes that it keeps.

    Examples:
        >>> class KeepWideProducts:
        ...     def keep(self, node):
        ...         weights = node.inputs[1] if node.op_type == "MatMul" else None
        ...         if weights is not None and weights.shape == (8, 16):
        ...             return "its weights are 8 by 16"
        >>> result = amp.rewrite("model.onnx", rules=[KeepWideProducts()])
        >>> print(amp.explain(result, "fc1"))
        fc1 (MatMul) stays float32: ... its weights are 8 by 16 (rule KeepWideProducts)
    """

    def keep(self, node: RuleNode, /) -> str | None:
        """Return why a node stays float32, or None if the rule does not keep it."""
        ...


Rule = KeepRule | PaintPass
"""The types of `rules`."""

_KEEPING = frozenset({Stage.GIVEN, Stage.KEEPING})


def checked_rules(rules: object) -> tuple[Rule, ...]:
    """Return rules as options hold them.

    Raises:
        OptionError: They are not several, or one is no rule.
    """
    expected = (
        "objects with a method keep(node), in a list, or functions under @amp_rewrite.rules.keep"
    )
    if callable(getattr(rules, "keep", None)) or isinstance(rules, PaintPass):
        raise OptionError("rules must be a list", found=called(rules), expected=expected)
    if isinstance(rules, str | Mapping) or not isinstance(rules, Iterable):
        raise OptionError("rules must be a list", found=repr(rules), expected=expected)
    checked = tuple[Any, ...](rules)
    for rule in checked:
        _check(rule, expected)
    return checked


def _check(rule: object, expected: str) -> None:
    """Refuse what is no rule.

    Raises:
        OptionError: It is none.
    """
    if isinstance(rule, PaintPass):
        if not rule.places or rule.places[0].stage not in _KEEPING:
            what = f"rule {rule.name} is a pass of another kind"
            stages = "a rule of the stage GIVEN or KEEPING"
            raise OptionError(what, found=f"a pass of {called(rule)}", expected=stages)
        return
    if isinstance(rule, type):
        where = f"the class {rule.__name__}"
        remedy = f"pass an object of it: {rule.__name__}()"
        raise OptionError("a rule must be an object", found=where, remedy=remedy)
    if not callable(getattr(rule, "keep", None)):
        found = f"an object of type {type(rule).__name__}"
        raise OptionError("a rule has no method keep", found=found, expected=expected)
    for attribute in ("name", "reason"):
        said = getattr(rule, attribute, "-")
        if not isinstance(said, str) or not said.strip():
            what = f"the {attribute} of rule {type(rule).__name__} is not a text"
            raise OptionError(what, found=repr(said), expected="a text, or no such attribute")


def called(rule: object) -> str:
    """Return what reports and messages call a rule."""
    return getattr(rule, "name", type(rule).__name__)


def said_of(rule: KeepRule, node: RuleNode) -> str | None:
    """Return why a rule keeps a node, or None.

    Raises:
        OptionError: The rule fails, or its reason is no text.
    """
    where = f"node {node.name} ({node.op_type})"
    try:
        said: Any = rule.keep(node)
    except Exception as error:
        raise OptionError(
            f"rule {called(rule)} fails",
            where=where,
            found=f"{type(error).__name__}: {' '.join(str(error).split())}",
            remedy="mend its method keep",
        ) from error
    if said is not None and not (isinstance(said, str) and said.strip()):
        raise OptionError(
            f"the reason of rule {called(rule)} is not a text",
            where=where,
            found=repr(said),
            expected="why the node stays float32, or None",
        )
    return said
