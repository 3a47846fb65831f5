"""What users of other converters type: understood where it means one thing, else answered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amp_rewrite.base import removed
from amp_rewrite.errors import OptionError

COMMANDS = {"compare": "verify", "benchmark": "run", "bench": "run", "validate": "check"}
"""Command elsewhere -> the command that does the same."""

_HINTS = {
    **dict.fromkeys(("--fp16", "--half", "--float16"), "--precision float16, the default"),
    **dict.fromkeys(("--bf16", "--bfloat16"), "--precision bfloat16"),
    **dict.fromkeys(("--op-block-list", "--op_block_list"), "--deny-op OPERATOR"),
    **dict.fromkeys(("--node-block-list", "--node_block_list"), "--deny-node NAME"),
    **dict.fromkeys(
        ("--exclude", "--skip", "--nodes-to-exclude", "--nodes_to_exclude"),
        "--deny-op OPERATOR keeps an operator in float32, --deny-node NAME a node",
    ),
    **dict.fromkeys(("--fp32", "--float32"), "convert --precision float32 widens a model"),
    "--int8": "models are converted to float16 or bfloat16 only",
    "--tolerance": "--rtol is the tolerance, relative to the output's peak",
    "--atol": "--rtol is the tolerance, relative to the output's peak",
    "--calibration-data": "--data FILE.npz names the inputs",
    "--calibration_data": "--data FILE.npz names the inputs",
    "--device": "--target names what the model is for, --provider what it runs on",
}
"""Option elsewhere (onnxconverter-common, ONNX Runtime, AutoCast, trtexec) -> what to use here."""


def understood(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command line with the command by its name here.

    Args:
        arguments: The words behind the program's name.

    Raises:
        OptionError: The command was removed, or a stream takes the place of a file.
    """
    words = list(arguments)
    at = next((k for k, word in enumerate(words) if not word.startswith("-")), None)
    if at is not None:
        words[at] = COMMANDS.get(words[at], words[at])
        if words[at] in removed.COMMANDS:
            raise OptionError(
                f"the command {words[at]} was removed in 0.1.0", remedy=removed.COMMANDS[words[at]]
            )
    end = words.index("--") if "--" in words else len(words)
    if "-" in words[:end]:
        raise OptionError("- for a stream was removed in 0.1.0", remedy="name a file")
    return words


def with_other_names(command: Any) -> Any:
    """Let a command take its output as a second argument, and answer options of other tools.

    The output must not exist yet: of two models that a pattern of the shell names, the second one
    is never replaced.
    """
    parse = command.parse_args

    def parse_args(ctx: Any, args: list[str]) -> Any:
        try:
            return parse(ctx, _with_output(command, ctx, args))
        except Exception as error:
            flag = str(getattr(error, "option_name", ""))
            message = _tell_instead(flag)
            if message is not None:
                error.message = message  # pyright: ignore[reportAttributeAccessIssue] click's NoSuchOption, of whichever click typer brings
                vars(error)["possibilities"] = None  # names that look alike do something else
            raise

    command.parse_args = parse_args
    return command


def _tell_instead(flag: str) -> str | None:
    """Return what to use in place of an option that there is not, if that is known."""
    if flag in removed.FLAGS:
        return f"{flag} was removed in 0.1.0; {removed.FLAGS[flag]}"
    return f"No such option: {flag}; {_HINTS[flag]}" if flag in _HINTS else None


def _with_output(command: Any, ctx: Any, args: list[str]) -> list[str]:
    """Return arguments in which an argument too many is the output, if there is none."""
    output = next((p for p in command.params if p.name == "output"), None)
    if output is None or "--" in args:
        return args
    try:
        values, extra, _ = command.make_parser(ctx).parse_args(args=list(args))
    except Exception:  # noqa: BLE001 the command says what is wrong
        return args
    if len(extra) != 1 or values.get("output") is not None or Path(extra[0]).exists():
        return args
    at = len(args) - 1 - args[::-1].index(extra[0])
    return [*args[:at], *args[at + 1 :], max(output.opts, key=len), extra[0]]
