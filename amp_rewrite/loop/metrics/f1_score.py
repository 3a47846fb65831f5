"""The harmonic mean of precision and recall."""

from __future__ import annotations

import numpy as np

from amp_rewrite.base import arguments
from amp_rewrite.errors import OptionError
from amp_rewrite.loop.metrics.class_comparison import ClassComparison
from amp_rewrite.loop.metrics.metric import Array
from amp_rewrite.training.step.step_info import LOGITS, PREDICTIONS

_AVERAGES = ("macro", "micro", "binary")


class F1Score(ClassComparison):
    """2 TP / (2 TP + FP + FN), from counts over all batches.

    Logits in the shape of integer or 0/1 labels are those of a sigmoid, positive where above 0,
    each column a class; otherwise the class is that of the largest logit. A class that neither
    occurs nor is predicted has the score 0, as in scikit-learn
    (https://scikit-learn.org/stable/modules/generated/sklearn.metrics.f1_score.html).
    """

    known_as = (LOGITS, PREDICTIONS)

    def __init__(
        self,
        logits: str | None = None,
        labels: str | None = None,
        *,
        average: str = "macro",
        ignore_index: int | None = None,
    ) -> None:
        """Say what to compare.

        Args:
            logits: (N, C), or (N,) of a sigmoid; None is what the step says.
            labels: Class numbers (N,), or 0 and 1 in the shape of the logits; None is what the
                step says.
            average: "macro" is the mean over the classes, "micro" counts all together, "binary"
                is the score of class 1.
            ignore_index: Labels of this number do not count; None is what the step says.

        Raises:
            OptionError: There is no such average, or another argument is of another kind.
        """
        self._average = arguments.one_of("average", average, _AVERAGES)
        super().__init__(logits, labels, "f1", ignore_index=ignore_index)
        self._forget()

    def _forget(self) -> None:
        self._true = self._predicted = self._actual = np.zeros(0, np.int64)
        self._counted = False

    def _compare(self, predicted: Array, labels: Array) -> None:
        if predicted.shape == labels.shape and predicted.ndim:
            said, is_so = self._of_sigmoid(predicted, labels)
            self._counted |= bool(self.counting(labels).any())
        else:
            classes, numbers = self.aligned(predicted, labels)
            self._counted |= bool(numbers.size)
            every = np.arange(classes.shape[-1])
            said, is_so = classes.argmax(-1)[..., None] == every, numbers[..., None] == every
        columns = said.shape[-1] if said.ndim > 1 else 1
        said, is_so = said.reshape(-1, columns), is_so.reshape(-1, columns)
        self._true = _added(self._true, (said & is_so).sum(0))
        self._predicted = _added(self._predicted, said.sum(0))
        self._actual = _added(self._actual, is_so.sum(0))

    def _of_sigmoid(self, logits: Array, labels: Array) -> tuple[Array, Array]:
        """Return which elements are said to be positive, and which are; False if ignored."""
        kept = self.counting(labels)
        wrong = kept & ~((labels >= 0) & (labels <= 1))
        if wrong.any():
            raise self.misfit(
                f"the label {labels[wrong][0]} in the shape of the predictions",
                "0 or 1 for each logit of a sigmoid",
            )
        return kept & (logits > 0), kept & (labels > 0.5)

    def result(self) -> float:
        """Return the score, from 0 to 1.

        Raises:
            OptionError: The average is "binary", and there are more than two classes.
        """
        true, total = self._true, self._predicted + self._actual
        if not self._counted:
            return float("nan")
        if self._average == "micro":
            true, total = true.sum(keepdims=True), total.sum(keepdims=True)
        elif self._average == "binary":
            if true.size > 2:
                raise OptionError(
                    "a binary F1 score is that of one of two classes",
                    found=f"{true.size} classes",
                    remedy='say average="macro"',
                )
            true, total = true[-1:], total[-1:]
        return float(np.mean(2 * true / np.maximum(total, 1)))


def _added(counts: Array, more: Array) -> Array:
    return more.astype(np.int64) if not counts.size else counts + more
