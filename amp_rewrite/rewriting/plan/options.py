"""The options of a rewrite: their one spelling, for Python and for the command line."""

from __future__ import annotations

import inspect
import os
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from amp_rewrite import targets
from amp_rewrite.base import arguments
from amp_rewrite.base.hints import hinted
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
from amp_rewrite.graph.modules import all_names
from amp_rewrite.oplists import Level, OpLists
from amp_rewrite.oplists.environment import names_of, split_name
from amp_rewrite.oplists.files import builtin_names
from amp_rewrite.rewriting.paint.node_rules import NodeRules
from amp_rewrite.rewriting.paint.paint_pass import PaintPass
from amp_rewrite.rewriting.plan.input_ranges import (
    FreeLengths,
    InputRanges,
    free_lengths,
    input_ranges,
)
from amp_rewrite.rewriting.rules.keep_rules import checked_rules

if TYPE_CHECKING:
    from amp_rewrite.graph.flat import FlatGraph

Lists = OpLists | str | Path | Sequence[str | Path] | None
Function = TypeVar("Function", bound=Callable[..., Any])
Value = TypeVar("Value")
Names = Collection[str]
Ranges = Mapping[str, tuple[float, float]] | Collection[str]
Dims = Mapping[str, int] | Collection[str]
Weights = Literal["convert", "cast"]
Overflow = Literal["keep", "scale", "auto"]
OnlyPrecision = Literal["float16", "bfloat16"]

_MOST, _LONG = 4, 120
"""Names, and characters of one, that `repr` shows of an option."""

MAIN, TYPES, RULES, ADVANCED = "Options", "Types", "Rules", "Advanced"
"""Groups in which helps and docs/mixed_precision.md show options."""

_MEASURING = ("calibrate", "tune", "localise")
_STEPS = ("train-step",)
_GIVEN = ("check", "repair")
"""Commands that lack some options: they measure a model as it is, know the types and variables of
a step, or read a model that is in 16 bits already."""


@dataclass(frozen=True)
class Shown:
    """The declaration of an option, without its name, type and default value.

    Attributes:
        more: Text that docs/mixed_precision.md has in addition to `help`.
        flag: Its flag, if that is not its name (in the singular, if repeatable).
        names: The help of `flag` if the option is a switch as well; `help` is about the switch.
        default: The default value in words, where the value does not say it.
        without: Commands that do not have it.
        check: Returns a given value as options hold it. The type says it, if None.
    """

    group: str
    help: str
    more: str = ""
    flag: str | None = None
    names: str | None = None
    default: str | None = None
    without: Collection[str] = ()
    check: Callable[[Any], Any] | None = None


def shown(value: Value, group: str, help: str, more: str = "", **about: Any) -> Value:  # noqa: A002
    """Declare an option, as the default value of its field; see `Shown` for the rest."""
    return field(default=value, metadata={"shown": Shown(group, help, more, **about)})


def _precision(given: object) -> str:
    return FLOAT32.name if type_name(given) == FLOAT32.name else low_dtype(given).name


def _target(given: Any) -> str | None:
    return None if given is None else targets.spelled(given)


def _only(given: Any) -> str | None:
    return None if given is None else low_dtype(given).name


def _operators(name: str) -> Callable[[Any], Names]:
    """Return the check of an option that holds operators: commas separate several."""
    return lambda given: tuple(
        op.strip() for text in arguments.texts(name, given) for op in text.split(",")
    )


def _kept_ends(given: Any) -> Any:
    return given if isinstance(given, bool) else arguments.texts("keep_io_types", given)


@dataclass(frozen=True, kw_only=True)
class RewriteOptions:
    """The options of a rewrite, checked.

    docs/mixed_precision.md says what each means, as do `amp-rewrite convert --help` and
    `help(amp_rewrite.RewriteOptions)`.

    Examples:
        >>> options = amp.RewriteOptions(precision="bfloat16", deny_nodes=["fc2"])
        >>> amp.rewrite("model.onnx", options)
        <RewriteResult: 2 of 4 float32 nodes in bfloat16 for cuda, 2 casts added>
    """

    precision: AnyPrecision = shown(
        "float16",
        MAIN,
        "The 16-bit type: float16 or bfloat16.",
        "`convert --precision float32` converts back, as "
        "[`widen`](repair.md#how-a-16-bit-model-is-read) does in Python.",
        without=("repair", *_STEPS),
        check=_precision,
    )
    target: targets.TargetChoice | None = shown(
        None,
        MAIN,
        targets.in_words(),
        "See [targets.md](targets.md). `a,b` is what both support, `table.json` what a kernel "
        "table has.",
        default="what the model was made for, else `cuda`",
        check=_target,
    )
    lists: Lists = shown(
        None,
        TYPES,
        "Op list, a file or a built-in name; later ones override.",
        flag="--lists",
        default="the built-in list of precision and target",
        check=lambda given: given,
    )
    level: Level = shown(
        "default",
        TYPES,
        "How much to convert: default, TENSOR_CORES_ONLY, TREAT_INFER_AS_DENY or UNSAFE_FORCE_ALL.",
        "See [op_lists.md](op_lists.md#levels). In upper or lower case. The environment "
        "variable `AMP_REWRITE_LEVEL` replaces `default`.",
        check=lambda given: given,
    )
    keep_io_types: bool | Names = shown(
        True,
        TYPES,
        "Keep the types of all graph inputs and outputs.",
        "Casts are inside the graph then. Off: all float ones become 16-bit, but for "
        "[those of which the digits count](what_stays_float32.md). Names (`--keep-io "
        "NAME`, in Python a list; patterns as for `--deny-node`): those alone keep "
        "their types. For a decoder with a cache, `--keep-io logits` makes the cache 16-bit, "
        "which saves a cast at every step. `float32` makes 16-bit inputs and outputs float32.",
        flag="--keep-io",
        names="Keep the types of inputs and outputs of this name or pattern only.",
        without=(*_STEPS, *_GIVEN),
        check=_kept_ends,
    )
    preserve: Names = shown((), RULES, "Leave this node untouched.", without=_GIVEN)
    deny_nodes: Names = shown(
        (),
        RULES,
        "Keep nodes or modules of this name or pattern float32.",
        "`*` is any text, `re:` begins a regular expression; both match whole names. "
        "[Modules](#names-of-modules) are those of PyTorch: `encoder.layers.0`.",
    )
    allow_nodes: Names = shown(
        (), RULES, "Treat nodes or modules of this name or pattern as safe in 16 bits."
    )
    deny_ops: Names = shown(
        (),
        RULES,
        "Keep this operator float32, for example Softmax.",
        check=_operators("deny_ops"),
    )
    allow_ops: Names = shown(
        (),
        RULES,
        "Treat this operator as safe in 16 bits, for example my.domain::Attn.",
        "[Custom operators](op_lists.md#custom-operators) too; the results of one have the "
        "type of its first input.",
        check=_operators("allow_ops"),
    )
    weights: Weights = shown(
        "convert",
        TYPES,
        "convert: store weights in 16 bits; cast: store float32 weights and add Casts.",
        without=_GIVEN,
    )
    overflow: Overflow = shown(
        "auto",
        TYPES,
        "Values that overflow float16. keep: compute in float32; auto: scale by powers of two "
        "if --data shows an overflow; scale: also if bounds or constants show one.",
        "[Scaling](#numbers-beyond-the-range) changes constants of the file, if more is "
        "converted then. `scale` may add Mul nodes.",
        without=(*_MEASURING, *_STEPS, "check"),
    )
    only: OnlyPrecision | None = shown(
        None,
        TYPES,
        "float16 or bfloat16: give every float node this type, else exit 3.",
        "No op list keeps a node float32 then: [devices without "
        "float32](#devices-without-float32).",
        default="none",
        without=(*_MEASURING, *_STEPS, "check"),
        check=_only,
    )
    infer_after_allow: bool = shown(
        True, ADVANCED, "Convert infer operators that follow an allow operator.", without=_GIVEN
    )
    inline_functions: bool = shown(
        False, TYPES, "Inline model-local functions; else their calls stay float32.", without=_GIVEN
    )
    move_casts: bool = shown(
        True, ADVANCED, "Move casts past Reshape and similar if that saves any.", without=_GIVEN
    )
    variables: Names = shown(
        (),
        RULES,
        "Graph input that is a training variable.",
        "The states of a step are known. An Identity that reads one stays float32.",
        without=(*_STEPS, *_GIVEN),
    )
    input_ranges: Ranges = shown(
        (),
        RULES,
        "NAME=LOW:HIGH: the range of an input's values.",
        "[What follows](#ranges-without-data) is proved, not estimated. In Python also `{name: "
        "(low, high)}`.",
        check=input_ranges,
    )
    dims: Dims = shown(
        (),
        TYPES,
        "NAME=LENGTH: the length of a free dimension of the inputs.",
        "Rules about sizes (long sums, shapes that differ) and the bytes of casts use it; it "
        "stays free in the result. In Python also `{name: length}`.",
        check=free_lengths,
    )
    rules: Sequence[PaintPass] = shown(
        (),
        RULES,
        "[Rules of your own](#rules-of-your-own): functions under `amp_rewrite.rules.keep`.",
        check=checked_rules,
    )
    strict: bool = shown(
        False,
        RULES,
        "Exit 3 if nothing useful was converted, an operator is on no list, or the target "
        "lacks a kernel.",
        "`convert` then verifies on stress inputs, too, but no training step.",
        without=_GIVEN,
    )

    def __post_init__(self) -> None:
        """Check the values, one by one and together; OptionError if one is impossible."""
        for option in OPTIONS:
            value = option.checked(getattr(self, option.name))
            object.__setattr__(self, option.name, value)
        if self.only is not None:
            self._take_only(self.only)
        if self.makes_low:
            targets.find(self.chosen_target).check_precision(self.precision)
        both = {*map(split_name, self.allow_ops)} & {*map(split_name, self.deny_ops)}
        if both:
            raise OptionError(
                "an operator is both allowed and denied",
                found=", ".join("::".join(filter(None, key)) for key in sorted(both)),
                expected="one of allow_ops and deny_ops",
            )
        _ = self.node_rules

    def _take_only(self, only: str) -> None:
        """Make the precision that of `only`; refuse another one."""
        if self.precision not in (only, FLOAT16.name):
            raise OptionError(
                "two precisions are asked for",
                found=f"only={only!r} with precision={self.precision!r}",
                remedy="omit the precision, or name one type twice",
            )
        object.__setattr__(self, "precision", only)

    @property
    def adds_nodes(self) -> bool:
        """Whether scaling may add a Mul where what is scaled meets what is not."""
        return self.overflow == SCALE or (self.only is not None and self.overflow == AUTO)

    @property
    def chosen_target(self) -> targets.TargetChoice:
        """The target; the default one where nobody named one, the model neither."""
        return self.target or targets.DEFAULT

    @property
    def low(self) -> DType:
        """The 16-bit type; OptionError if the precision is float32."""
        if not self.makes_low:
            raise OptionError(
                "a rewrite to float32 makes nothing 16-bit",
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
        """The given ranges of inputs, checked."""
        return input_ranges(self.input_ranges)

    @property
    def lengths(self) -> FreeLengths:
        """The given lengths of free dimensions, checked."""
        return free_lengths(self.dims)

    def __repr__(self) -> str:
        """Return what is not as by default."""
        short = reprlib.Repr()
        short.maxtuple = short.maxlist = short.maxdict = short.maxset = _MOST
        short.maxstring = short.maxother = _LONG
        named = (
            f"{option.name}={short.repr(value)}"
            for option in OPTIONS
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
        """Refuse names and patterns that fit nothing in the model.

        Raises:
            OptionError: One does not.
        """
        rules, kept = self.node_rules, self.keep_io_types
        nodes = all_names(model) if rules.deny or rules.allow else ()
        operators = dict.fromkeys(name for c in model.operators for name in names_of(c))
        inputs = {model.value_names[v] for v in model.main.inputs}
        ends = [*inputs, *(model.value_names[v] for v in model.main.outputs)]
        names = () if isinstance(kept, bool) or self.ends_are_float32 else _kept(kept)
        listed = "`amp-rewrite explain MODEL` lists the names"
        whole = "names are whole here; deny_nodes takes patterns"
        _require_known("preserve", self.preserve, {*model.node_names}, "a node name", whole)
        _require_known("deny_nodes", rules.deny, nodes, "a node or a module", listed)
        _require_known("allow_nodes", rules.allow, nodes, "a node or a module", listed)
        _require_known("deny_ops", self.deny_ops, operators, "an operator of the model", listed)
        _require_known("allow_ops", self.allow_ops, operators, "an operator of the model", listed)
        _require_known("variables", self.variables, inputs, "a graph input")
        _require_known("keep_io_types", names, ends, "a graph input or output")
        _require_known("input_ranges", self.ranges, inputs, _any_of(inputs))
        require_dimensions(self.lengths, model)


@dataclass(frozen=True)
class Declared:
    """An option: its name, type, default value, and what annotates it."""

    name: str
    type: Any
    default: Any
    shown: Shown

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that are its values, without `None`."""
        words = (
            self.type if get_origin(self.type) is Literal else next(iter(get_args(self.type)), 0)
        )
        return get_args(words) if get_origin(words) is Literal else ()

    @property
    def is_repeated(self) -> bool:
        """Whether the command line repeats its flag, once for each name."""
        return self.shown.flag is not None or self.type in (Names, Ranges, Dims)

    @property
    def flag(self) -> str:
        """Its flag, or that of its names: `--deny-node` of `deny_nodes`."""
        name = self.name.removesuffix("s") if self.is_repeated else self.name
        return self.shown.flag or f"--{name.replace('_', '-')}"

    def checked(self, value: Any) -> Any:
        """Return a value as options hold it.

        Raises:
            OptionError: It is impossible.
        """
        if self.shown.check is not None:
            return self.shown.check(value)
        if self.type is bool:
            return arguments.switch(self.name, value)
        if self.choices:
            return arguments.one_of(self.name, value, self.choices)
        return arguments.texts(self.name, value)


_TYPES = get_type_hints(RewriteOptions)

OPTIONS = tuple(
    Declared(each.name, _TYPES[each.name], each.default, each.metadata["shown"])
    for each in fields(RewriteOptions)
)
"""All options of a rewrite, in their order."""

COMMAND_LINE = tuple(option for option in OPTIONS if option.name != "rules")
"""The options that the command line has, too."""

RewriteOptions.__doc__ = f"{RewriteOptions.__doc__}\n    Attributes:\n" + "\n".join(
    f"        {option.name}: {option.shown.help} {option.shown.more}".rstrip() for option in OPTIONS
)

# made by tools/make_option_table.py: keywords


class StepChanges(TypedDict, total=False):
    """The options of a rewrite as keyword arguments, without the precision."""

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
    overflow: Overflow
    infer_after_allow: bool
    inline_functions: bool
    move_casts: bool
    variables: Names
    input_ranges: Ranges
    dims: Dims
    rules: Sequence[PaintPass]
    strict: bool


class Changes(StepChanges, total=False):
    """The options of a rewrite as keyword arguments."""

    precision: PrecisionLike
    only: OnlyPrecision | None


# end


_SYNONYMS = {"op_block_list": "deny_ops", "node_block_list": "deny_nodes"}
"""Names in onnxconverter-common of options that mean the same."""


def changed(options: RewriteOptions | None, **changes: Unpack[Changes]) -> RewriteOptions:
    """Return options, the default ones for None, after changes."""
    if not (options is None or isinstance(options, RewriteOptions)):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            "options must be RewriteOptions",
            found=repr(options),
            remedy="pass each option by its name; what was calibrated or tuned has save(path), for "
            "lists=path",
        )
    if not _SYNONYMS.keys().isdisjoint(changes):
        renamed: Any = {_SYNONYMS.get(name, name): v for name, v in changes.items()}
        return changed(options, **renamed)
    # Editors complete the names of options where they can follow them to the class.
    return RewriteOptions(**changes) if options is None else replace(options, **changes)  # pyright: ignore[reportArgumentType] it is spelled there


def _kept(given: Names) -> list[NamePattern]:
    return [NamePattern.of(text, "keep_io_types") for text in given]


AUTO, KEEP, SCALE = "auto", "keep", "scale"
"""The words for the opset that a model is converted to, in place of a number, and of overflow."""


def with_option_names(function: Function) -> Function:
    """Give a function of `**changes` a signature that names them all, and refuse others."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    kind = inspect.Parameter.KEYWORD_ONLY
    named = [
        inspect.Parameter(option.name, kind, default=option.default, annotation=option.type)
        for option in OPTIONS
        if option.name not in signature.parameters
    ]
    function.__signature__ = signature.replace(parameters=[*own, *named])  # pyright: ignore[reportFunctionMemberAccess] PEP 362
    return hinted(function, also=_SYNONYMS)


def _require_known(
    option: str,
    given: Iterable[str | NamePattern],
    known: Collection[str],
    kind: str,
    remedy: str | None = None,
) -> None:
    for each in given:
        is_text = isinstance(each, str)
        text = each if is_text else each.text
        if not (each in known if is_text else each.matches_any(known)):
            raise OptionError(
                f"{option} names nothing in the model",
                found=repr(text),
                expected=suggestion(text.strip("*."), sorted(known), kind),
                remedy=remedy if is_text else "; ".join(filter(None, (hint(text), remedy))),
            )


def require_dimensions(lengths: FreeLengths, model: FlatGraph) -> None:
    """Refuse lengths of what no input of the model has."""
    free = {*model.free_dimensions}
    _require_known("dims", lengths, free, _any_of(free))


def _any_of(names: set[str]) -> str:
    return " or ".join(map(repr, sorted(names))) or "no name: there is none"


def option_words(options: RewriteOptions) -> tuple[tuple[str, ...], ...]:
    """Return the options that are not the default ones, each as its words on the command line.

    Lists that were made in Python are named by the files that they were made from.

    Example:
        (("--precision", "bfloat16"), ("--deny-node", "head"), ("--no-move-casts",))
    """
    usual = RewriteOptions()
    return tuple(
        words
        for option in COMMAND_LINE
        if option.name != "strict"  # it checks a rewrite and changes nothing in it
        and getattr(options, option.name) != getattr(usual, option.name)
        for words in _words(option, getattr(options, option.name))
    )


def _words(option: Declared, value: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(value, bool):
        yield (f"--{'' if value else 'no-'}{option.name.replace('_', '-')}",)
    elif option.is_repeated:
        yield from ((option.flag, text) for text in _texts(value))
    else:
        yield option.flag, str(value)


def _texts(value: Any) -> Iterator[str]:
    """Yield what is repeated for an option that takes names, ranges or files."""
    if isinstance(value, Mapping):
        for name, given in value.items():
            number = str(given) if isinstance(given, int) else f"{given[0]:.9g}:{given[1]:.9g}"
            yield f"{name}={number}"
    elif isinstance(value, str | os.PathLike):
        yield os.fspath(value)
    elif isinstance(value, OpLists):
        built_in = {f"lists/{name}.yaml": name for name in builtin_names()}
        if not built_in.keys() >= set(value.files):
            yield from (built_in.get(file, file) for file in value.files)
    else:
        yield from map(os.fspath, value)
