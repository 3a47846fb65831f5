"""The options of a rewrite: their one spelling, for Python and for the command line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from amp_rewrite import arguments, targets
from amp_rewrite.dtypes import DType, Precision, low_dtype
from amp_rewrite.errors import OptionError
from amp_rewrite.graph.nearest import suggestion
from amp_rewrite.oplists import Level, OpLists
from amp_rewrite.paint.node_rules import NodeRules
from amp_rewrite.rewriting.input_ranges import InputRanges, check_input_names, input_ranges

if TYPE_CHECKING:
    from amp_rewrite.graph.flat import FlatGraph

Lists = OpLists | str | Path | Sequence[str | Path] | None
Names = Collection[str]
Ranges = Mapping[str, tuple[float, float]] | Collection[str]
Weights = Literal["convert", "cast"]
Store = Literal["float32", "tables", "half"]


def _shown(
    help_: str,
    *,
    flag: str | None = None,
    names: str | None = None,
    choices: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what the command line needs to make an option of a field.

    Args:
        help_: The text of `--help`.
        flag: What is repeated, once for each name, if the field holds names.
        names: The help of `flag` where the field is a switch as well; `help_` is the switch's then.
        choices: What a shell completes the value with.
    """
    return {"help": help_, "flag": flag, "names": names, "choices": choices}


@dataclass(frozen=True, kw_only=True)
class RewriteOptions:
    """What a rewrite is asked to do.

    Attributes:
        precision: "float16" or "bfloat16".
        target: What the result is for: a target with an execution provider makes low only what
            that has kernels for; "schema" whatever the ONNX schemas admit. The path of a kernel
            table (.json), or several targets with commas between: what all of them support.
        lists: Op lists: None for the built-in ones of precision and target, a YAML file, several
            files of which later ones overlay earlier ones, or an OpLists.
        level: Its letter case does not matter; the environment variable AMP_REWRITE_LEVEL applies
            to "default".
        keep_io_types: True keeps the types of all graph inputs and outputs, with casts inside;
            False gives every float32 one the low type; a list of names keeps those.
        preserve: Names of nodes that must not be touched.
        deny_nodes: Regular expressions; nodes whose whole name matches stay float32.
        allow_nodes: Regular expressions; nodes that are treated as if on the allow list.
        weights: "convert" stores low-precision weights; "cast" keeps float32 ones and adds Casts.
        store: Which constants are stored in 16 bits though they compute as float32, behind a Cast
            that the runtime folds when it loads the model: "tables", those that Gather reads and
            whose rows end in converted parts; "half", all large ones; "float32", none. What does
            not survive that stays as it is.
        infer_after_allow: Whether an infer operator right behind an allow one becomes low.
        inline_functions: Inline model-local functions first; otherwise a call is a boundary.
        move_casts: Whether casts move across operators that change no value, where that saves some.
        variables: Names of graph inputs that are training variables, as the states of a step are
            without being named: an Identity that reads one stays float32.
        input_ranges: Graph input -> (the least, the greatest) number that it ever holds; or texts
            such as "x=0:255". What follows from it is proved rather than estimated.
        strict: Check every invariant, and refuse a rewrite that converts nothing useful, meets an
            operator on no list, or lacks a kernel.
    """

    precision: Precision = field(
        default="float16", metadata=_shown("float16 or bfloat16.", choices=get_args(Precision))
    )
    target: targets.TargetChoice = field(
        default=targets.DEFAULT,
        metadata=_shown(targets.in_words(), choices=get_args(targets.TargetName)),
    )
    lists: Lists = field(
        default=None,
        metadata=_shown(
            "Op list file or built-in name; repeat to lay one over another.", flag="--lists"
        ),
    )
    level: Level = field(
        default="default",
        metadata=_shown(
            "default, TENSOR_CORES_ONLY, TREAT_INFER_AS_DENY or UNSAFE_FORCE_ALL (any case).",
            choices=get_args(Level),
        ),
    )
    keep_io_types: bool | Names = field(
        default=True,
        metadata=_shown(
            "Keep graph input and output types.",
            flag="--keep-io",
            names="Keep only the types of these inputs and outputs; repeat.",
        ),
    )
    preserve: Names = field(
        default=(), metadata=_shown("Name of a node not to touch; repeat.", flag="--preserve")
    )
    deny_nodes: Names = field(
        default=(),
        metadata=_shown("Regex for whole node names to keep float32; repeat.", flag="--deny-node"),
    )
    allow_nodes: Names = field(
        default=(),
        metadata=_shown(
            "Regex for whole node names to treat as allowed; repeat.", flag="--allow-node"
        ),
    )
    weights: Weights = field(
        default="convert",
        metadata=_shown(
            "convert: store low-precision weights; cast: keep float32 ones.",
            choices=get_args(Weights),
        ),
    )
    store: Store = field(
        default="tables",
        metadata=_shown(
            "What is stored in 16 bits though it computes in float32: tables that Gather reads, "
            "half: all large constants that survive it, or float32: nothing.",
            choices=get_args(Store),
        ),
    )
    infer_after_allow: bool = field(
        default=True,
        metadata=_shown("Let an infer operator right behind an allow one become low."),
    )
    inline_functions: bool = field(
        default=False,
        metadata=_shown("Inline model-local functions first; otherwise calls are boundaries."),
    )
    move_casts: bool = field(
        default=True,
        metadata=_shown("Move casts across operators that change no value where that saves some."),
    )
    variables: Names = field(
        default=(),
        metadata=_shown(
            "Name of a graph input that is a training variable; repeat.", flag="--variable"
        ),
    )
    input_ranges: Ranges = field(
        default=(),
        metadata=_shown(
            "NAME=LOW:HIGH: the least and the greatest number that an input holds; repeat.",
            flag="--input-range",
        ),
    )
    strict: bool = field(
        default=False,
        metadata=_shown(
            "Check every invariant; exit 3 if nothing useful was converted, an operator is on no "
            "list, or a kernel is missing."
        ),
    )

    def __post_init__(self) -> None:
        """Reject impossible values, and keep names as tuples.

        Raises:
            OptionError: A value is unknown, or a pattern is not a regular expression.
        """
        for name in ("keep_io_types", "preserve", "deny_nodes", "allow_nodes", "variables"):
            given = getattr(self, name)
            if name != "keep_io_types" or not isinstance(given, bool):
                object.__setattr__(self, name, arguments.texts(name, given))
        for name in ("infer_after_allow", "inline_functions", "move_casts", "strict"):
            object.__setattr__(self, name, arguments.switch(name, getattr(self, name)))
        object.__setattr__(self, "input_ranges", input_ranges(self.input_ranges))
        low_dtype(self.precision)
        targets.find(self.target).check_precision(self.precision)
        arguments.one_of("weights", self.weights, get_args(Weights))
        arguments.one_of("store", self.store, get_args(Store))
        if self.store == "half" and self.weights == "cast":
            raise OptionError(
                "weights that stay float32 in the file cannot be stored in 16 bits",
                found="store='half' with weights='cast'",
                remedy="leave one of them away",
            )
        _ = self.rules

    @property
    def low(self) -> DType:
        """The low-precision type."""
        return low_dtype(self.precision)

    @property
    def ranges(self) -> InputRanges:
        """What the user says of inputs, checked."""
        return input_ranges(self.input_ranges)

    @property
    def rules(self) -> NodeRules:
        """The rules about single nodes."""
        return NodeRules(
            preserve=frozenset(self.preserve),
            deny=tuple(_pattern("deny_nodes", p) for p in self.deny_nodes),
            allow=tuple(_pattern("allow_nodes", p) for p in self.allow_nodes),
        )

    def check_names(self, model: FlatGraph) -> None:
        """Reject names and patterns that fit nothing in the model.

        Raises:
            OptionError: `preserve`, `keep_io_types`, `deny_nodes`, `allow_nodes`, `variables` or
                `input_ranges` names nothing.
        """
        nodes = set(model.node_names)
        _require_known("preserve", self.preserve, nodes, "a node name")
        for option in ("deny_nodes", "allow_nodes"):
            for pattern in getattr(self, option):
                if not any(re.fullmatch(pattern, name) for name in nodes):
                    raise OptionError(
                        f"{option} matches no node",
                        found=repr(pattern),
                        expected=suggestion(
                            pattern, model.node_names, "a regular expression for a whole node name"
                        ),
                        remedy="`amp-rewrite explain MODEL` lists the node names",
                    )
        check_input_names(self.ranges, model)
        inputs = {model.value_names[v] for v in model.main.inputs}
        _require_known("variables", self.variables, inputs, "a graph input")
        if not isinstance(self.keep_io_types, bool):
            ends = {model.value_names[v] for v in (*model.main.inputs, *model.main.outputs)}
            _require_known("keep_io_types", self.keep_io_types, ends, "a graph input or output")


class StepChanges(TypedDict, total=False):
    """The options of RewriteOptions as keyword arguments, but for the precision."""

    target: targets.TargetChoice
    lists: Lists
    level: Level
    keep_io_types: bool | Names
    preserve: Names
    deny_nodes: Names
    allow_nodes: Names
    weights: Weights
    store: Store
    infer_after_allow: bool
    inline_functions: bool
    move_casts: bool
    variables: Names
    input_ranges: Ranges
    strict: bool


class Changes(StepChanges, total=False):
    """The options of RewriteOptions as keyword arguments; a test holds the two together."""

    precision: Precision


def changed(options: RewriteOptions | None, changes: Mapping[str, Any]) -> RewriteOptions:
    """Return options, the default ones for None, after changes.

    Raises:
        OptionError: A change names no option, or its value is impossible.
    """
    if not (options is None or isinstance(options, RewriteOptions)):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            "options must be RewriteOptions",
            found=repr(options),
            remedy="pass amp_rewrite.RewriteOptions(...), or each option by its name",
        )
    known = [option.name for option in fields(RewriteOptions)]
    for name in changes:
        if name not in known:
            close = get_close_matches(name, known)
            expected = " or ".join(close) or ", ".join(known)
            raise OptionError("unknown option", found=name, expected=expected)
    return replace(options or RewriteOptions(), **changes)


def _pattern(option: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise OptionError(
            f"{option} holds no regular expression",
            found=repr(text),
            expected=f"Python syntax ({error})",
        ) from error


def _require_known(option: str, names: Iterable[str], known: set[str], kind: str) -> None:
    for name in names:
        if name not in known:
            raise OptionError(
                f"{option} names nothing in the model",
                found=repr(name),
                expected=suggestion(name, sorted(known), kind),
            )
