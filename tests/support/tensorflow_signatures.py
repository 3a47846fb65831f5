"""The public names of the documents that this package succeeds, with their arguments.

Of TensorFlow 2.3's API reference, and of Keras 3.5's for what came later; the names of a document
are those of its page.
"""

from __future__ import annotations

ENABLE = "enable_mixed_precision_graph_rewrite"
SCALER = "LossScaleOptimizer"
V1_SCALER = "MixedPrecisionLossScaleOptimizer"
SCALES = ("LossScale", "FixedLossScale", "DynamicLossScale")
SHARDS = "CrossShardOptimizer"
V1 = "tf.compat.v1.train.Optimizer"
KERAS = "tf.keras.optimizers.Optimizer"
LATER_SCALER = "LossScaleOptimizer of TensorFlow 2.4 to Keras 3"
V1_OPTIMIZERS = "tf.compat.v1.train, its optimizers"
KERAS_OPTIMIZERS = "tf.keras.optimizers, its optimizers"
KERAS_SCHEDULES = "tf.keras.optimizers.schedules"

_KERAS_ARGUMENTS = (
    "weight_decay clipnorm clipvalue global_clipnorm use_ema ema_momentum ema_overwrite_frequency "
    "loss_scale_factor gradient_accumulation_steps name"
)

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
    LATER_SCALER: {
        SCALER: "inner_optimizer dynamic initial_scale dynamic_growth_steps name",
        **dict.fromkeys(("inner_optimizer", "dynamic", "dynamic_counter", "initial_scale"), ""),
        "dynamic_growth_steps": "",
        "get_scaled_loss": "loss",
        "scale_loss": "loss",
        "get_unscaled_gradients": "grads",
        "get_config": "",
        "from_config": "config custom_objects",
    },
    V1_OPTIMIZERS: {
        "GradientDescentOptimizer": "learning_rate use_locking name",
        "MomentumOptimizer": "learning_rate momentum use_locking name use_nesterov",
        "AdagradOptimizer": "learning_rate initial_accumulator_value use_locking name",
        "AdadeltaOptimizer": "learning_rate rho epsilon use_locking name",
        "RMSPropOptimizer": "learning_rate decay momentum epsilon use_locking centered name",
        "AdamOptimizer": "learning_rate beta1 beta2 epsilon use_locking name",
    },
    KERAS_OPTIMIZERS: {
        name: f"{own} {_KERAS_ARGUMENTS}"
        for name, own in {
            "SGD": "learning_rate momentum nesterov",
            "RMSprop": "learning_rate rho momentum epsilon centered",
            "Adam": "learning_rate beta_1 beta_2 epsilon amsgrad",
            "AdamW": "learning_rate beta_1 beta_2 epsilon amsgrad",
            "Adagrad": "learning_rate initial_accumulator_value epsilon",
            "Adadelta": "learning_rate rho epsilon",
            "Lamb": "learning_rate beta_1 beta_2 epsilon",
        }.items()
    },
    KERAS_SCHEDULES: {
        "ExponentialDecay": "initial_learning_rate decay_steps decay_rate staircase name",
        "PolynomialDecay": "initial_learning_rate decay_steps end_learning_rate power cycle name",
        "PiecewiseConstantDecay": "boundaries values name",
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
