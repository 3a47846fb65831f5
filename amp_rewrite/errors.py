"""Errors that a user can act on.

Every deliberate failure of the package is an `AmpError`: one line that says what went wrong,
where, what was found, what was expected and what to do. The same facts are attributes, so that a
program does not have to parse the line.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amp_rewrite.base.printable import printable

_SHOWN = 8  # skipped steps in the text of a LossScaleError
_PACKAGE = str(Path(__file__).resolve().parent)


class AmpError(Exception):
    """Base class of every deliberate error.

    Attributes:
        what: What went wrong, without the place.
        where: The file, node, value or list entry concerned, or None.
        found: What was found there, or None.
        expected: What would have been right, or None.
        remedy: What the user can do, or None.

    Examples:
        >>> try:
        ...     amp.rewrite("model.onnx", deny_nodes=["fc3"])
        ... except amp.AmpError as error:
        ...     print(error.what)
        deny_nodes names nothing in the model
    """

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        found: object = None,
        expected: object = None,
        remedy: str | None = None,
    ) -> None:
        """Keep the facts and compose the one-line message from them."""
        self.what = what
        self.where = None if where is None else str(where)
        self.found = None if found is None else str(found)
        self.expected = None if expected is None else str(expected)
        self.remedy = remedy
        super().__init__(self._line())

    def _line(self) -> str:
        parts = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.found is not None:
            parts.append(f"found {self.found}")
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        if self.remedy is not None:
            parts.append(self.remedy)
        return printable(" ".join("; ".join(parts).split()))


def placed(error: AmpError, where: object, kind: type[AmpError] | None = None) -> AmpError:
    """Return an error with the same facts at another place, of another kind if one is given."""
    facts = {"found": error.found, "expected": error.expected, "remedy": error.remedy}
    return (kind or type(error))(error.what, where=where, **facts)


class AmpWarning(UserWarning):
    """Category of every warning: what was asked for is done, but may not be what was meant."""


def warn(text: str) -> None:
    """Warn, with the category AmpWarning, at the innermost line that is outside this package."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, AmpWarning, stacklevel=level - 1 if frame is None else level)


class LoadError(AmpError):
    """A file cannot be read as an ONNX model."""


class GraphError(AmpError):
    """A model was read, but its graph is not valid ONNX."""


class SaveError(AmpError):
    """A model cannot be written where it was asked to go."""


class OptionError(AmpError):
    """An option of the API, the command line or the environment has an impossible value."""


class KeywordError(OptionError, TypeError):
    """A function was called with a keyword argument that it does not have."""


class ListError(AmpError):
    """An op list is unreadable or contradicts itself; `where` is `file:line`."""


class KernelTableError(AmpError):
    """A kernel table is missing or unreadable, or a runtime cannot list its kernels."""


class InvariantError(AmpError):
    """A rewritten model breaks an invariant of the pass: a defect of this package."""


class StrictError(AmpError):
    """A rewrite with the option `strict` leaves float32 what it should not.

    Attributes:
        shortcomings: What it leaves, one line each.
        result: The result of the rewrite in spite of it, with its report.
        option: The option that refuses it.
    """

    option = "strict"

    def __init__(self, shortcomings: Sequence[str], result: Any) -> None:
        """Keep the lines and the result."""
        self.shortcomings = tuple(shortcomings)
        self.result = result
        super().__init__("; ".join(self.shortcomings), where=self.option)


class OnlyError(StrictError):
    """A rewrite with the option `only` leaves float32 something that cannot be in 16 bits."""

    option = "only"


class VerdictError(AmpError):
    """A converted model failed, and `write_failed` was not given.

    Attributes:
        conversion: What was converted and found.
    """

    def __init__(self, failures: Sequence[str], conversion: Any) -> None:
        """Keep the conversion and say what does not hold."""
        self.conversion = conversion
        super().__init__(
            "the converted model failed verification",
            found="; ".join(failures),
            remedy="look at the verdict, or pass write_failed=True to write it anyway",
        )


class UnloadableError(VerdictError):
    """ONNX Runtime does not load a file that was made, or ends with its process; it is not written.

    Attributes:
        conversion: What was made.
    """

    def __init__(
        self,
        said: str,
        conversion: Any,
        *,
        where: str | None = None,
        found: str | None = None,
        remedy: str = "nothing was written; --write-failed or write_failed=True insists on it",
    ) -> None:
        """Keep what was made, and say what ONNX Runtime said."""
        self.conversion = conversion
        AmpError.__init__(self, said, where=where, found=found, remedy=remedy)


class RunError(AmpError):
    """An engine, ONNX Runtime for example, cannot load or run a model."""


class OutOfTimeError(RunError):
    """A time limit ended what an engine was doing; whoever set it goes on without that."""


class RuntimeMissingError(AmpError):
    """An engine is needed for what was asked and is not installed, or is too old."""


class DataError(AmpError):
    """Data for a model cannot be read, or do not fit its inputs."""


class UnknownValueError(OptionError):
    """A name denotes no value of the model."""


class GradientError(AmpError):
    """A graph cannot be differentiated; `where` is the node concerned."""


class OptimizerValueError(AmpError, ValueError):
    """An optimizer, a schedule or a clipping function is given an impossible value."""


class OptimizerTypeError(AmpError, TypeError):
    """An optimizer is given an object of a kind that it does not take."""


class UnsupportedError(AmpError, NotImplementedError):
    """TensorFlow's API has what was asked for, and a training graph cannot have it."""


class LossError(OptionError, ValueError):
    """A loss cannot be computed from what was given."""


class LossScaleValueError(AmpError, ValueError):
    """A loss scale, or an optimizer that is to be wrapped, is impossible."""


class LossScaleTypeError(AmpError, TypeError):
    """Loss scaling is given an object of a kind that it does not take."""


class LossScaleError(AmpError):
    """The loss scale has collapsed: too many steps in a row were skipped at its floor.

    Attributes:
        history: (number of the step in this session, its loss scale) of the skipped steps, the
            latest last.
    """

    def __init__(
        self,
        history: Sequence[tuple[int, float]],
        floor: float,
        limit: int,
        cause: str | None = None,
        place: str | None = None,
        *,
        fixed: bool = False,
    ) -> None:
        """Describe the skipped steps, and what is known of the cause and place of the last one."""
        self.history = tuple(history)
        self._told, self._fixed = (floor, limit, cause), fixed
        shown = ", ".join(f"step {step}: {scale:g}" for step, scale in self.history[-_SHOWN:])
        super().__init__(
            f"{limit} steps in a row were skipped at the {'fixed' if fixed else 'lowest'} loss "
            f"scale, {floor:g}",
            where="loss scale" if place is None else f"{place}: loss scale",
            found=f"gradients that are not finite ({shown})" + (f"; {cause}" if cause else ""),
            expected="finite gradients at some loss scale",
            remedy="use a smaller loss scale or a dynamic one, and look for NaN in the data"
            if fixed
            else "look for NaN in the data and for a diverging loss, lower the learning rate, or "
            "set floor below 1",
        )

    def at(self, place: str) -> LossScaleError:
        """Return the same error of the step at a place, such as a batch of an epoch."""
        return LossScaleError(self.history, *self._told, place, fixed=self._fixed)


class StepError(AmpError):
    """A training step cannot be built, or a model is not one."""


class FeedError(AmpError):
    """The values fed to a step do not fit its inputs."""


class FetchError(AmpError):
    """A step is asked for a value that it does not compute."""


class CheckpointError(AmpError):
    """A checkpoint cannot be read, or belongs to another model."""


class DivergenceError(AmpError):
    """Training has led to a loss that is not finite."""


class InjectError(AmpError, ValueError):
    """A training graph is not what was said of it, or cannot take a loss scale."""


class TrainingInfoError(AmpError):
    """An operator of ai.onnx.preview.training is not usable."""


class ShardError(AmpError):
    """Shards differ, one of them has ended or does not answer, or an engine is not there."""
