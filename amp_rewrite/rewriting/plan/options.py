"""The options of a rewrite: their one spelling, for Python and for the command line."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, get_args

from amp_rewrite import targets
from amp_rewrite.base import arguments, removed
from amp_rewrite.base.name_patterns import NamePattern, hint, suggestion
from amp_rewrite.dtypes import (
    FLOAT16,
    FLOAT32,
    AnyPrecision,
    DType,
    PrecisionLike,
    low_dtype,
    type_name,
)
from amp_rewrite.errors import OptionError
from amp_rewrite.oplists import Level, OpLists
from amp_rewrite.oplists.environment import names_of, split_name
from amp_rewrite.rewriting.paint.node_rules import NodeRules
from amp_rewrite.rewriting.plan.free_lengths import FreeLengths, check_dimensions, free_lengths
from amp_rewrite.rewriting.plan.input_ranges import InputRanges, check_input_names, input_ranges
from amp_rewrite.rewriting.rules.keep_rules import Rule, checked_rules

if TYPE_CHECKING:
    from amp_rewrite.graph.flat import FlatGraph

Lists = OpLists | str | Path | Sequence[str | Path] | None
Function = TypeVar("Function", bound=Callable[..., Any])
Names = Collection[str]
Ranges = Mapping[str, tuple[float, float]] | Collection[str]
Dims = Mapping[str, int] | Collection[str]
Weights = Literal["convert", "cast"]
Store = Literal["default", "float32", "tables", "half"]
Stored = Literal["float32", "tables", "half"]
Overflow = Literal["keep", "scale", "auto"]
OnlyPrecision = Literal["float16", "bfloat16"]

_PATTERNS = ("deny_nodes", "allow_nodes")
_MOST, _LONG = 4, 120
"""Names, and characters of one, that `repr` shows of an option."""


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
        precision: "float16" or "bfloat16". "float32" asks `convert` on the command line for the
            float32 form of a model in other types, as `widen` gives it; nothing else takes it.
        target: What the result is for: a target with an execution provider makes low only what
            that has kernels for; "schema" whatever the ONNX schemas admit. The path of a kernel
            table (.json), or several targets with commas between: what all of them support.
            None is what the model says that it was made for, else "cuda".
        lists: Op lists: None for the built-in ones of precision and target, a YAML file, several
            files of which later ones overlay earlier ones, or an OpLists.
        level: Its letter case does not matter; the environment variable AMP_REWRITE_LEVEL applies
            to "default".
        keep_io_types: True keeps the types of all graph inputs and outputs, with casts inside;
            False gives every one in another float type the low type; a list of names, or patterns
            of them, keeps those; "float32" makes 16-bit ones float32 and keeps the others.
        preserve: Names of nodes that must not be touched.
        deny_nodes: Patterns of node names, with * for any text, or `re:` and a regular expression;
            these nodes stay float32.
        allow_nodes: Such patterns; these nodes are treated as if on the allow list.
        deny_ops: Operators, as "Op" or "domain::Op", that are treated as if on the deny list.
        allow_ops: Operators, so named, that are treated as if on the allow list; one that no schema
            knows gives results like its first input.
        weights: "convert" stores low-precision weights; "cast" keeps float32 ones and adds Casts.
        store: Which constants are stored in 16 bits though they compute as float32, behind a Cast
            that the runtime folds when it loads the model: "tables", those that Gather reads and
            whose rows end in converted parts; "half", all large ones; "float32", none; "default",
            tables, but none on a target that converts their rows at each look-up. What does not
            survive that stays as it is.
        overflow: What becomes of numbers beyond the range of float16: "keep" computes them in
            float32; "auto" multiplies them by powers of two, which go into constants of the file,
            where data show them, that keeps more of the model low and adds no node; "scale" does
            so without data, too, where bounds or constants show them.
        only: "float16" or "bfloat16", where a device computes in nothing else: that is the
            precision, no op list keeps anything float32, and a model of which something cannot be
            low is refused. A Mul is added where `overflow="auto"` needs one.
        infer_after_allow: Whether an infer operator right behind an allow one becomes low.
        inline_functions: Inline model-local functions first; otherwise a call is a boundary.
        move_casts: Whether casts move across operators that change no value, where that saves some.
        variables: Names of graph inputs that are training variables, as the states of a step are
            without being named: an Identity that reads one stays float32.
        input_ranges: Graph input -> (the least, the greatest) number that it ever holds; or texts
            such as "x=0:255". What follows from it is proved rather than estimated.
        dims: Name of a free dimension, as inputs give it -> its length; or texts such as "N=8".
            Rules about sizes count with it, and reports of casts. The rewritten model keeps it
            free, and is meant for that length.
        rules: Rules of your own, in Python only: objects with a method `keep(node)` that returns
            why a node stays float32, or None (`KeepRule`), or functions under
            `amp_rewrite.rules.keep`, as the built-in rules are.
        strict: Refuse a rewrite that converts nothing useful, meets an operator on no list,
            or lacks a kernel.

    Examples:
        >>> options = amp.RewriteOptions(precision="bfloat16", deny_nodes=["fc2"])
        >>> amp.rewrite("model.onnx", options)
        <RewriteResult: 2 of 4 float32 nodes in bfloat16 for cuda, 2 casts added>
    """

    precision: AnyPrecision = field(
        default="float16",
        metadata=_shown(
            "float16 or bfloat16; float32 converts a 16-bit model back.",
            choices=get_args(AnyPrecision),
        ),
    )
    target: targets.TargetChoice | None = field(
        default=None,
        metadata=_shown(targets.in_words(), choices=get_args(targets.TargetName)),
    )
    lists: Lists = field(
        default=None,
        metadata=_shown(
            "Op list: a file or a built-in name; with several, later ones override earlier ones.",
            flag="--lists",
        ),
    )
    level: Level = field(
        default="default",
        metadata=_shown(
            "How much to convert: default, TENSOR_CORES_ONLY, TREAT_INFER_AS_DENY or "
            "UNSAFE_FORCE_ALL (in any case).",
            choices=get_args(Level),
        ),
    )
    keep_io_types: bool | Names = field(
        default=True,
        metadata=_shown(
            "Keep the types of all graph inputs and outputs.",
            flag="--keep-io",
            names="Keep only the types of these inputs and outputs: a name, or a regular "
            "expression for whole names; repeatable.",
        ),
    )
    preserve: Names = field(
        default=(), metadata=_shown("Node to leave untouched; repeatable.", flag="--preserve")
    )
    deny_nodes: Names = field(
        default=(),
        metadata=_shown(
            "Keep nodes of this name or pattern float32; repeatable.", flag="--deny-node"
        ),
    )
    allow_nodes: Names = field(
        default=(),
        metadata=_shown(
            "Treat nodes of this name or pattern as allowed; repeatable.", flag="--allow-node"
        ),
    )
    deny_ops: Names = field(
        default=(),
        metadata=_shown(
            "Keep this operator float32, for example Softmax; repeatable.", flag="--deny-op"
        ),
    )
    allow_ops: Names = field(
        default=(),
        metadata=_shown(
            "Treat this operator as allowed, for example my.domain::Attn; repeatable.",
            flag="--allow-op",
        ),
    )
    weights: Weights = field(
        default="convert",
        metadata=_shown(
            "convert: store weights in 16 bits; cast: store float32 weights and add Casts.",
            choices=get_args(Weights),
        ),
    )
    store: Store = field(
        default="default",
        metadata=_shown(
            "Constants to store in 16 bits but compute in float32. tables: tables that Gather "
            "reads, the default on most targets; half: all large constants that lose little; "
            "float32: none.",
            choices=get_args(Store),
        ),
    )
    overflow: Overflow = field(
        default="auto",
        metadata=_shown(
            "Values that overflow float16. keep: compute them in float32; auto: scale them by "
            "powers of two where --data shows an overflow and no node is added; scale: also where "
            "bounds or constants show one.",
            choices=get_args(Overflow),
        ),
    )
    only: OnlyPrecision | None = field(
        default=None,
        metadata=_shown(
            "float16 or bfloat16: for devices without float32. Every float node must be in this "
            "type; otherwise nothing is written (exit 3).",
            choices=get_args(OnlyPrecision),
        ),
    )
    infer_after_allow: bool = field(
        default=True,
        metadata=_shown("Convert an infer operator that directly follows an allow operator."),
    )
    inline_functions: bool = field(
        default=False,
        metadata=_shown("Inline model-local functions first; otherwise calls stay float32."),
    )
    move_casts: bool = field(
        default=True,
        metadata=_shown("Move casts across operators such as Reshape where that saves casts."),
    )
    variables: Names = field(
        default=(),
        metadata=_shown("Graph input that is a training variable; repeatable.", flag="--variable"),
    )
    input_ranges: Ranges = field(
        default=(),
        metadata=_shown(
            "NAME=LOW:HIGH: the range of an input's values; repeatable.",
            flag="--input-range",
        ),
    )
    dims: Dims = field(
        default=(),
        metadata=_shown(
            "NAME=LENGTH: the length of a free dimension of the inputs; repeatable.",
            flag="--dim",
        ),
    )
    rules: Sequence[Rule] = ()
    strict: bool = field(
        default=False,
        metadata=_shown(
            "Exit 3 if nothing useful was converted, an operator is on no list, or the target "
            "lacks a kernel."
        ),
    )

    def __post_init__(self) -> None:
        """Reject impossible values, and keep names as tuples.

        Raises:
            OptionError: A value is unknown, or a pattern is not a regular expression.
        """
        for name in ("keep_io_types", "preserve", *_PATTERNS, "deny_ops", "allow_ops", "variables"):
            given = getattr(self, name)
            if name != "keep_io_types" or not isinstance(given, bool):
                object.__setattr__(self, name, arguments.texts(name, given))
        for name in ("infer_after_allow", "inline_functions", "move_casts", "strict"):
            object.__setattr__(self, name, arguments.switch(name, getattr(self, name)))
        object.__setattr__(self, "rules", checked_rules(self.rules))
        object.__setattr__(self, "input_ranges", input_ranges(self.input_ranges))
        object.__setattr__(self, "dims", free_lengths(self.dims))
        object.__setattr__(self, "precision", _spelled(self.precision))
        if self.only is not None:
            self._take_only(self.only)
        if self.target is not None:
            object.__setattr__(self, "target", targets.spelled(self.target))
        if self.makes_low:
            targets.find(self.chosen_target).check_precision(self.precision)
        both = {*map(split_name, self.allow_ops)} & {*map(split_name, self.deny_ops)}
        if both:
            raise OptionError(
                "an operator is both allowed and denied",
                found=", ".join("::".join(filter(None, key)) for key in sorted(both)),
                expected="one of allow_ops and deny_ops",
            )
        arguments.one_of("weights", self.weights, get_args(Weights))
        arguments.one_of("store", self.store, get_args(Store))
        arguments.one_of("overflow", self.overflow, get_args(Overflow))
        if self.store == "half" and self.weights == "cast":
            raise OptionError(
                "weights that stay float32 in the file cannot be stored in 16 bits",
                found="store='half' with weights='cast'",
                remedy="omit one of them",
            )
        _ = self.node_rules

    def _take_only(self, only: str) -> None:
        """Let the precision be the only type that there is to be.

        Raises:
            OptionError: It is none of 16 bits, or another precision was asked for.
        """
        spelled = low_dtype(only).name
        if self.precision not in (spelled, FLOAT16.name):
            raise OptionError(
                "two precisions are asked for",
                found=f"only={spelled!r} with precision={self.precision!r}",
                remedy="omit the precision, or name one type twice",
            )
        object.__setattr__(self, "only", spelled)
        object.__setattr__(self, "precision", spelled)

    @property
    def adds_nodes(self) -> bool:
        """Whether scaling may add a Mul where what is scaled meets what is not."""
        return self.overflow == SCALE or (self.only is not None and self.overflow == AUTO)

    @property
    def chosen_target(self) -> targets.TargetChoice:
        """The target; the default one where nobody named one, the model neither."""
        return self.target or targets.DEFAULT

    @property
    def chosen_store(self) -> Stored:
        """Which constants are stored in 16 bits though they compute as float32."""
        if self.store != "default":
            return self.store
        return "float32" if targets.find(self.chosen_target).converts_rows else "tables"

    @property
    def low(self) -> DType:
        """The low-precision type.

        Raises:
            OptionError: The precision is float32.
        """
        if not self.makes_low:
            raise OptionError(
                "a rewrite to float32 makes nothing low",
                remedy="for the float32 form of a model in other types: amp_rewrite.widen(model), "
                "or `amp-rewrite convert --precision float32`",
            )
        return low_dtype(self.precision)

    @property
    def makes_low(self) -> bool:
        """Whether the precision is a 16-bit one."""
        return self.precision != FLOAT32.name

    @property
    def ranges(self) -> InputRanges:
        """What the user says of inputs, checked."""
        return input_ranges(self.input_ranges)

    @property
    def lengths(self) -> FreeLengths:
        """What the user says of free dimensions, checked."""
        return free_lengths(self.dims)

    def __repr__(self) -> str:
        """Return what is not as by default."""
        short = reprlib.Repr()
        short.maxtuple = short.maxlist = short.maxdict = short.maxset = _MOST
        short.maxstring = short.maxother = _LONG
        named = (
            f"{option.name}={short.repr(value)}"
            for option in fields(self)
            if (value := getattr(self, option.name)) != option.default
            and (value or option.default)  # no ranges are an empty mapping, by default ()
        )
        return f"{type(self).__name__}({', '.join(named)})"

    @property
    def node_rules(self) -> NodeRules:
        """The rules about single nodes that options name."""
        return NodeRules(
            preserve=frozenset(self.preserve),
            deny=tuple(NamePattern.of(p, "deny_nodes") for p in self.deny_nodes),
            allow=tuple(NamePattern.of(p, "allow_nodes") for p in self.allow_nodes),
        )

    @property
    def ends_are_float32(self) -> bool:
        """Whether graph inputs and outputs in 16 bits become float32, as for `repair`."""
        return self.keep_io_types == (FLOAT32.name,)

    def keeps_type(self, name: str) -> bool:
        """Tell whether a graph input or output keeps its type, by its name."""
        kept = self.keep_io_types
        if self.ends_are_float32:
            return True
        return kept if isinstance(kept, bool) else any(p.matches(name) for p in _kept(kept))

    def check_names(self, model: FlatGraph) -> None:
        """Reject names and patterns that fit nothing in the model.

        Raises:
            OptionError: `preserve`, `keep_io_types`, `deny_nodes`, `allow_nodes`, `deny_ops`,
                `allow_ops`, `variables`, `input_ranges` or `dims` names nothing.
        """
        nodes = set(model.node_names)
        _require_known("preserve", self.preserve, nodes, "a node name")
        rules = self.node_rules
        for option, patterns in (("deny_nodes", rules.deny), ("allow_nodes", rules.allow)):
            for pattern in patterns:
                if not pattern.matches_any(nodes):
                    raise OptionError(
                        f"{option} matches no node",
                        found=repr(pattern.text),
                        expected=suggestion(
                            pattern.text.strip("*."), model.node_names, "a pattern of node names"
                        ),
                        remedy=f"{hint(pattern.text)}; `amp-rewrite explain MODEL` lists the names",
                    )
        names = {name for called in model.operators for name in names_of(called)}
        _require_known("deny_ops", self.deny_ops, names, "an operator of the model")
        _require_known("allow_ops", self.allow_ops, names, "an operator of the model")
        check_input_names(self.ranges, model)
        check_dimensions(self.lengths, model)
        inputs = {model.value_names[v] for v in model.main.inputs}
        _require_known("variables", self.variables, inputs, "a graph input")
        if not isinstance(self.keep_io_types, bool) and not self.ends_are_float32:
            ends = {model.value_names[v] for v in (*model.main.inputs, *model.main.outputs)}
            unknown = [p.text for p in _kept(self.keep_io_types) if not p.matches_any(ends)]
            _require_known("keep_io_types", unknown, ends, "a graph input or output")


class StepChanges(TypedDict, total=False):
    """The options of RewriteOptions as keyword arguments, but for the precision."""

    target: targets.TargetChoice | None
    lists: Lists
    level: Level
    keep_io_types: bool | Names
    preserve: Names
    deny_nodes: Names
    allow_nodes: Names
    deny_ops: Names
    allow_ops: Names
    weights: Weights
    store: Store
    overflow: Overflow
    infer_after_allow: bool
    inline_functions: bool
    move_casts: bool
    variables: Names
    input_ranges: Ranges
    dims: Dims
    rules: Sequence[Rule]
    strict: bool


class Changes(StepChanges, total=False):
    """The options of RewriteOptions as keyword arguments; a test holds the two together."""

    precision: PrecisionLike
    only: OnlyPrecision | None


COMMAND_LINE = tuple(option for option in fields(RewriteOptions) if option.metadata)
"""The options that the command line has, too."""

_SYNONYMS = {"op_block_list": "deny_ops", "node_block_list": "deny_nodes"}
"""What onnxconverter-common calls an option that means the same."""

_ELSEWHERE = {"dtype": "precision", "keep_io": "keep_io_types", "ops": "deny_ops"}
"""What users try first -> the option that does it."""


def changed(options: RewriteOptions | None, **changes: Unpack[Changes]) -> RewriteOptions:
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
    if not _SYNONYMS.keys().isdisjoint(changes):
        renamed: Any = {_SYNONYMS.get(name, name): v for name, v in changes.items()}
        return changed(options, **renamed)
    names = [option.name for option in fields(RewriteOptions)]
    for name in changes:
        if name in removed.ARGUMENTS:
            raise OptionError(f"{name} was removed in 0.1.0", remedy=removed.ARGUMENTS[name])
        if name not in names:
            close = [_ELSEWHERE[name]] if name in _ELSEWHERE else get_close_matches(name, names)
            expected = " or ".join(close) or ", ".join(names)
            raise OptionError("unknown option", found=name, expected=expected)
    # Editors complete the names of options where they can follow them to the class.
    return RewriteOptions(**changes) if options is None else replace(options, **changes)  # pyright: ignore[reportArgumentType] it is spelled there


def _spelled(precision: object) -> str:
    """Return a precision as options hold it."""
    return FLOAT32.name if type_name(precision) == FLOAT32.name else low_dtype(precision).name


def _kept(given: Names) -> list[NamePattern]:
    return [NamePattern.of(text, "keep_io_types") for text in given]


AUTO, KEEP, SCALE = "auto", "keep", "scale"
"""What is said of the opset that a model is moved to, in place of a number, and of overflow."""


def with_option_names(function: Function) -> Function:
    """Give a function of `**changes` a signature that names them all, for notebooks and `help`."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    named = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=option.type,
        )
        for option in fields(RewriteOptions)
        if option.name not in signature.parameters
    ]
    function.__signature__ = signature.replace(parameters=[*own, *named])  # pyright: ignore[reportFunctionMemberAccess] PEP 362
    return function


def _require_known(option: str, names: Iterable[str], known: set[str], kind: str) -> None:
    for name in names:
        if name not in known:
            raise OptionError(
                f"{option} names nothing in the model",
                found=repr(name),
                expected=suggestion(name, sorted(known), kind),
            )
