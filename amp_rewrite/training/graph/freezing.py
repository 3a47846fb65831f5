"""What of a training graph is not trained."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Freezing:
    """What users asked for, by `freeze` and `unfreeze`.

    Attributes:
        asked: Variable -> whether it is frozen; others are trained unless they are constants of a
            formula.
        train_statistics: Whether BatchNormalization uses and tracks the statistics of the batch;
            None is all but those whose scale and bias are frozen.
    """

    asked: dict[str, bool] = field(default_factory=dict[str, bool])
    train_statistics: bool | None = None
