"""The public names of the documents that this package succeeds, with their arguments.

Of TensorFlow 2.3's API reference; the names of a document are those of its page.
"""

from __future__ import annotations

ENABLE = "enable_mixed_precision_graph_rewrite"
SCALER = "LossScaleOptimizer"
V1_SCALER = "MixedPrecisionLossScaleOptimizer"
SCALES = ("LossScale", "FixedLossScale", "DynamicLossScale")
SHARDS = "CrossShardOptimizer"
V1 = "tf.compat.v1.train.Optimizer"
KERAS = "tf.keras.optimizers.Optimizer"

_KERAS_METHODS = {
    "add_slot": "var slot_name initializer",
    "add_weight": "name shape dtype initializer trainable synchronization aggregation",
    "apply_gradients": "grads_and_vars name experimental_aggregate_gradients",
    "from_config": "config custom_objects",
    "get_config": "",
    "get_gradients": "loss params",
    "get_slot": "var slot_name",
    "get_slot_names": "",
    "get_updates": "loss params",
    "get_weights": "",
    "minimize": "loss var_list grad_loss name",
    "set_weights": "weights",
    "variables": "",
    "iterations": "",
    "weights": "",
}
_V1_METHODS = {
    "apply_gradients": "grads_and_vars global_step name",
    "compute_gradients": "loss var_list gate_gradients aggregation_method "
    "colocate_gradients_with_ops grad_loss",
    "get_name": "",
    "get_slot": "var name",
    "get_slot_names": "",
    "minimize": "loss global_step var_list gate_gradients aggregation_method "
    "colocate_gradients_with_ops name grad_loss",
    "variables": "",
}

DOCUMENTS: dict[str, dict[str, str]] = {
    ENABLE: {
        ENABLE: "opt loss_scale",
        f"{ENABLE}_v1": "opt loss_scale",
        "disable_mixed_precision_graph_rewrite": "",
        "disable_mixed_precision_graph_rewrite_v1": "",
    },
    SCALER: {
        SCALER: "opt loss_scale",
        "loss_scale": "",
        "learning_rate": "",
        "lr": "",
        "get_scaled_loss": "loss",
        "get_unscaled_gradients": "grads",
        **_KERAS_METHODS,
    },
    V1_SCALER: {V1_SCALER: "opt loss_scale", **_V1_METHODS},
    SCALES[0]: {
        **dict.fromkeys((SCALES[0], "__call__", "get_config"), ""),
        "update": "grads", "from_config": "config",
    },
    SCALES[1]: {SCALES[1]: "loss_scale_value"},
    SCALES[2]: {
        SCALES[2]: "initial_loss_scale increment_period multiplier",
        "initial_loss_scale": "",
        "increment_period": "",
        "multiplier": "",
    },
    SHARDS: {
        SHARDS: "opt reduction name group_assignment",
        **_V1_METHODS, "compute_gradients": "loss var_list **kwargs",
    },
    V1: {
        V1: "use_locking name",
        **dict.fromkeys(("GATE_NONE", "GATE_OP", "GATE_GRAPH"), ""),
        **_V1_METHODS,
    },
    KERAS: {
        KERAS: "name clipnorm clipvalue global_clipnorm lr decay",
        "learning_rate": "",
        **_KERAS_METHODS,
        "apply_gradients": f"{_KERAS_METHODS['apply_gradients']} skip_gradients_aggregation",
    },
}  # fmt: skip
"""Document -> name -> its arguments."""


def entries() -> list[tuple[str, str, str]]:
    """Return (document, name, argument) of every name, argument "", and of every argument."""
    return [
        (document, name, argument)
        for document, names in DOCUMENTS.items()
        for name, arguments in names.items()
        for argument in ("", *arguments.split())
    ]
