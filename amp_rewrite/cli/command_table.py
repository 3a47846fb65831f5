"""The commands by name: the file of one is imported when it is called, or asked for its help.

What users of other converters type is understood where it means one thing, else answered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from amp_rewrite.base import removed
from amp_rewrite.base.name_patterns import nearest
from amp_rewrite.cli.common import INTERRUPTED
from amp_rewrite.cli.parameters import GROUPS, MAIN, command_of
from amp_rewrite.errors import OptionError

COMMANDS: Mapping[str, str] = {
    "convert": "Convert MODEL to mixed precision.",
    "check": "Check whether a 16-bit model is numerically safe.",
    "repair": "Repair a 16-bit model: raise to float32 only what is unsafe.",
    "explain": "Explain why each NODE of MODEL becomes 16-bit or stays float32.",
    "inputs": "Generate plausible inputs for MODEL, for --data; edit them as you like.",
    "verify": "Emulate REWRITTEN in its 16-bit type and compare it with ORIGINAL.",
    "calibrate": (
        "Run MODEL in float32 on data and list the nodes whose values overflow the 16-bit type."
    ),
    "localise": "Print what each rounding adds to the error of the outputs, the most first.",
    "tune": "Keep as little as possible in float32, so that MODEL meets a tolerance on your data.",
    "check-lists": (
        "Check op lists against ONNX schemas and kernel tables, and models against op lists."
    ),
    "run": "Run MODEL on an execution provider; print the time and which nodes ran there.",
    "train-step": "Build a training step for FORWARD: an ONNX model that any runtime can run.",
    "train": "Train STEP on data, with checkpoints, metrics and evaluation.",
    "doctor": "Train STEP until a value is not finite; name its source, and values that underflow.",
    "demo": "Build a small image classifier, convert it, and compare it with float32.",
}
"""Name -> the first line of the command's docstring, which the list of commands shows.

The command `train-step` is the function `train_step` of the file `train_step.py`.
"""

_FEW = 10
"""Up to this many options stand in one group."""

_WIDTH = 140
"""Columns that a help takes at most; it takes as many as the terminal has."""

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH}
"""The settings of all commands."""

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "convert": (
        "amp-rewrite convert model.onnx -o model.fp16.onnx",
        "amp-rewrite convert model.onnx -o model.bf16.onnx --precision bfloat16",
        "amp-rewrite convert model.onnx -o model.fp16.onnx --data samples/ --rtol 0.01",
        "amp-rewrite convert model.onnx -o kept.fp16.onnx --deny-node 'classifier*'",
        "amp-rewrite convert model.fp16.onnx -o wide.onnx --precision float32",
    ),
    "check": (
        "amp-rewrite check model.fp16.onnx",
        "amp-rewrite check model.fp16.onnx --no-run --report safety.json",
        "amp-rewrite check model.onnx model.fp16.onnx --format github",
    ),
    "repair": (
        "amp-rewrite repair model.fp16.onnx -o fixed.onnx --target webgpu",
        "amp-rewrite repair model.fp16.onnx -o fixed.onnx --data samples/",
    ),
    "explain": (
        "amp-rewrite explain model.onnx attention.softmax",
        "amp-rewrite convert model.onnx --dry-run --html report.html",
    ),
    "inputs": (
        "amp-rewrite inputs model.onnx -o inputs.npz",
        "amp-rewrite inputs model.onnx -o made_up/ --batches 8 --input-range image=0:1",
    ),
    "verify": (
        "amp-rewrite verify model.onnx model.fp16.onnx",
        "amp-rewrite verify model.onnx model.fp16.onnx --data inputs.npz --stress",
    ),
    "calibrate": (
        "amp-rewrite calibrate model.onnx --data samples/ -o ranges.yaml",
        "amp-rewrite convert model.onnx -o model.fp16.onnx --lists ranges.yaml",
    ),
    "localise": ("amp-rewrite localise model.onnx model.fp16.onnx --data inputs.npz",),
    "tune": (
        "amp-rewrite tune model.onnx --data samples/ -o tuned.yaml --rtol 0.01",
        "amp-rewrite convert model.onnx -o model.fp16.onnx --lists tuned.yaml",
    ),
    "check-lists": (
        "amp-rewrite check-lists",
        "amp-rewrite check-lists tuned.yaml --model model.onnx --format json",
    ),
    "run": ("amp-rewrite run model.fp16.onnx --data inputs.npz -o outputs.npz",),
    "train-step": (
        "amp-rewrite train-step digits.onnx -o step.onnx \\\n"
        "  --loss softmax-cross-entropy:logits:t --optimizer adam",
        "amp-rewrite train-step digits.onnx -o fp16_step.onnx \\\n"
        "  --loss softmax-cross-entropy:logits:t --precision float16",
    ),
    "train": (
        "amp-rewrite train step.onnx --data digits_train.npz --epochs 2 -o trained.onnx",
        "amp-rewrite train step.onnx --data digits_train.npz \\\n"
        "  --eval digits_test.npz --checkpoint last.safetensors",
    ),
    "doctor": ("amp-rewrite doctor step.onnx --data digits_train.npz",),
    "demo": ("amp-rewrite demo", "amp-rewrite demo --folder demo --precision bfloat16"),
}
"""Command -> lines to type. The tests run them one after the other, in this order."""

FIRST = ("amp-rewrite demo", "amp-rewrite convert model.onnx -o model.fp16.onnx")
"""The examples at the end of the list of commands."""

ELSEWHERE = {
    "compare": "verify",
    "benchmark": "run",
    "bench": "run",
    "validate": "check",
    "localize": "localise",
    "rewrite": "convert",
}
"""Command elsewhere -> the command that does the same."""

_ANSWERS = {
    "--precision float16, the default": "--fp16 --half --float16",
    "--precision bfloat16": "--bf16 --bfloat16",
    "--precision float16 or bfloat16": "--dtype",
    "the type is that of the model": "verify:--precision repair:--precision run:--precision",
    "`amp-rewrite convert --precision float32` widens a model": "--fp32 --float32",
    "models are converted to float16 or bfloat16 only": "--int8",
    "--deny-op OPERATOR": "--op-block-list",
    "--deny-node NAME": "--node-block-list",
    "--deny-op OPERATOR keeps an operator in float32, --deny-node NAME a node": (
        "--exclude --skip --nodes-to-exclude"
    ),
    "--rtol is the tolerance, relative to the output's peak": "--tolerance --atol",
    "--tolerance is the error, relative to an output's spread, that is too large": (
        "localise:--rtol localise:--atol localise:--metric"
    ),
    "--target names the runtime that the model is for, --provider what runs it": "--device --gpu",
    "--provider names what runs it": "--target",
    "the model is the first argument; --data FILE.npz has the inputs' values": "--input -i",
    "the model is the first argument": "--model -m",
    "--data FILE.npz has the inputs' values": "--calibration-data --inputs --samples",
    "--dim NAME=LENGTH": "--input-shape --shape",
    "free dimensions get lengths by themselves; edit the arrays for others": (
        "inputs:--dim inputs:--shape inputs:--input-shape"
    ),
    "`amp-rewrite inputs --batches N` makes data": "--batches",
    "`amp-rewrite repair` does": "--fix",
    "`amp-rewrite train` trains the step": "train-step:--epochs train-step:--data",
    "`amp-rewrite train-step` builds the step with it": (
        "train:--optimizer train:--loss train:--precision train:--option"
    ),
    "--learning-rate RATE": "--lr",
    "--option KEY=VALUE gives the optimizer an argument": "--weight-decay --momentum --beta1",
    "--eval FILE has held-out data": "--validation --valid --test",
    "--report FILE.json writes a report": "--json -o --output",
    "--folder FOLDER": "demo:-o demo:--output",
    "files are replaced without asking": "--force -f --overwrite -y",
    "nothing is verified without --data, --verify, --stress or --strict": "--no-verify",
}
"""Remedy -> options elsewhere (onnxconverter-common, ONNX Runtime, AutoCast, trtexec). It is for
commands that have an option that it names, or if it names a command."""

_HINTS = {flag: hint for hint, flags in _ANSWERS.items() for flag in flags.split()}

_WRITTEN = (".onnx", ".yaml", ".npz")


def command(name: str) -> Any:
    """Import a command and return it."""
    function = name.replace("-", "_")
    module = import_module(f"{__package__}.{function}")
    run = getattr(module, function)
    return command_of(run, _Command, SETTINGS, name=name, epilog=epilog(EXAMPLES[name]))


class Commands(click.Group):
    """The group of commands, of which it knows names and first lines until one is called."""

    def __init__(self, **settings: Any) -> None:
        """Take the settings of a group; the commands are those of the table."""
        settings["commands"] = {n: click.Command(n, help=line) for n, line in COMMANDS.items()}
        super().__init__(**settings)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the table's order."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each name beside its whole first line."""
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an interruption is an exit status: click would print an empty line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Exit(INTERRUPTED) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the command that is called, the command, and its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else command(name), rest


class _Command(click.Command):
    """A command whose help shows its options in groups, and which answers options of other tools.

    It takes its output as a second argument, too. That file must not exist yet, so that no model
    that a pattern of the shell names is replaced.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; an error says what to use instead, where that is known."""
        try:
            return super().parse_args(ctx, _with_output(self, ctx, args))
        except click.NoSuchOption as error:
            raise click.UsageError(_unknown(self, error.option_name), ctx) from error
        except click.MissingParameter as error:
            needs = error.param is not None and error.param.name == "data"
            if not needs or self.name not in ("calibrate", "run", "tune"):
                raise
            how = "`amp-rewrite inputs MODEL -o inputs.npz` makes some"
            raise click.MissingParameter(how, ctx, error.param) from error

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options of each group."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        sections |= {group: [] for group in GROUPS}
        parameters = self.get_params(ctx)
        are_few = sum(p.param_type_name == "option" for p in parameters) <= _FEW
        for parameter in parameters:
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            group = MAIN if are_few else getattr(parameter, "group", MAIN)
            is_option = parameter.param_type_name == "option"
            sections[group if is_option else "Arguments"].append(record)
        for name, rows in sections.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)


def epilog(examples: tuple[str, ...]) -> str:
    r"""Return the examples after the options; click breaks no line of a paragraph after \b."""
    lines = "\n".join(examples).replace("\n", "\n  ")
    return f"\b\nExamples:\n  {lines}"


def understood(arguments: Sequence[str]) -> list[str]:
    """Return the words after the program's name, with the command by its name here.

    Raises:
        OptionError: The command was removed, or a file is `-`.
    """
    words = list(arguments)
    at = next((k for k, word in enumerate(words) if not word.startswith("-")), None)
    if at is not None:
        if words[at] == "help":
            return [*words[:at], *words[at + 1 :], "--help"]
        words[at] = ELSEWHERE.get(words[at], words[at])
        remedy = removed.COMMANDS.get(words[at])
        if remedy is not None:
            raise OptionError(f"the command {words[at]} was removed in 0.1.0", remedy=remedy)
    end = words.index("--") if "--" in words else len(words)
    if "-" in words[:end]:
        raise OptionError("- for a stream was removed in 0.1.0", remedy="name a file")
    return words


def _unknown(used: click.Command, flag: str) -> str:
    """Return what to say of an option that a command does not have."""
    name, word = flag.replace("_", "-"), flag.strip("-")
    own = [each for p in used.params for each in p.opts if each.startswith("--")]
    for key in (f"{used.name}:{name}", name):
        if key in removed.FLAGS:
            return f"{flag} was removed in 0.1.0; {removed.FLAGS[key]}"
        hint = _HINTS.get(key, "--")
        named = re.findall(r"--[\w-]*", hint)
        if not named or hint.startswith("`") or {*named} & {*own}:
            return f"No such option: {flag}; {hint}"
    if word in COMMANDS:
        return f"No such option: {flag}; `amp-rewrite {word}` is a command of its own"
    meant = " or ".join(f"--{near}" for near in nearest(word, (each[2:] for each in own)))
    if meant and word[1:]:
        return f"No such option: {flag}; did you mean {meant}?"
    having = [each for each in COMMANDS if any(name in p.opts for p in command(each).params)]
    return f"No such option: {flag}" + (f"; it is one of {', '.join(having)}" if having else "")


def _with_output(command: Any, ctx: Any, args: list[str]) -> list[str]:
    """Return arguments in which an argument too many is the output, if there is none.

    Raises:
        UsageError: It is a file that exists, or what belongs to an option.
    """
    try:
        values, extra, _ = command.make_parser(ctx).parse_args(args=list(args))
    except Exception:  # noqa: BLE001 the command says what is wrong
        return args
    if not extra or "--" in args:
        return args
    word, at = extra[0], len(args) - 1 - args[::-1].index(extra[0])
    before, value = args[max(0, at - 2)], args[max(0, at - 1)]
    of = {flag: p for p in command.params for flag in p.opts}
    end, is_new = Path(word).suffix, not Path(word).exists()
    is_other, said = end not in _WRITTEN, None
    if getattr(of.get(value), "is_flag", False) and is_other:
        said = f"{value} takes no value"
    elif getattr(of.get(before), "multiple", False) and (is_other or end == Path(value).suffix):
        said = f"{before} takes one value; repeat it: {before} {word}"
    elif "--data" in of and "data" not in values and end in (".npz", ".csv") and not is_new:
        said = f"name data with --data {word}"
    elif "--output" not in of or values.get("output") is not None or len(extra) > 1:
        return args
    elif not is_new:
        said = f"it exists already; -o {word} replaces it"
    if said is not None:
        raise click.UsageError(f"Got unexpected extra argument {word!r}; {said}", ctx)
    return [*args[:at], *args[at + 1 :], "--output", word]
