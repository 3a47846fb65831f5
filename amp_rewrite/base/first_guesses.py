"""What users of other packages write first -> what to write here."""

from __future__ import annotations

from collections.abc import Mapping

ATTRIBUTES: Mapping[str, str] = {
    # PyTorch, TensorFlow and Keras
    "GradScaler": "LossScaleOptimizer(optimizer)",
    "autocast": "TrainingSession(train_op, precision='float16')",
    "GradientTape": "optimizers.Adam().compute_gradients(loss), or minimize(loss)",
    "Session": "TrainingSession(train_op)",
    "Saver": "TrainingSession.save(path) and restore(path)",
    "global_variables_initializer": "nothing: a session begins with the model's weights",
    "placeholder": "inputs of the model, which TrainingSession.run is fed by name",
    "backward": "optimizer.minimize(loss), and run the step in a TrainingSession",
    "detach": "optimizer.compute_gradients(loss, var_list=[...]), which names what is trained",
    "param_groups": "optimizers.ParameterGroups(optimizer, [...])",
    "parameters": "TrainingSession.state_dict()",
    "lr": "learning_rate",
    "to_onnx": "TrainingSession.export(path)",
    **dict.fromkeys(("fit", "train", "compile"), "Trainer(session).train(data, epochs=...)"),
    **dict.fromkeys(("step", "zero_grad", "train_on_batch"), "TrainingSession.run(feeds): a step"),
    **dict.fromkeys(("load", "load_weights"), "TrainingSession.restore(path)"),
    **dict.fromkeys(("predict", "forward"), "TrainingSession.evaluate(feeds, fetches)"),
    **dict.fromkeys(
        ("item", "numpy", "eval"),
        "TrainingSession.run(feeds, [value]): a value has no numbers before a step runs",
    ),
    # losses
    **dict.fromkeys(
        ("cross_entropy", "CrossEntropyLoss", "SparseCategoricalCrossentropy", "nll_loss"),
        "losses.softmax_cross_entropy",
    ),
    **dict.fromkeys(("binary_cross_entropy", "BCEWithLogitsLoss"), "losses.sigmoid_cross_entropy"),
    **dict.fromkeys(("mse", "mse_loss", "MSELoss"), "losses.mean_squared_error"),
    **dict.fromkeys(("mae", "l1_loss", "L1Loss"), "losses.mean_absolute_error"),
    **dict.fromkeys(("smooth_l1_loss", "huber_loss", "HuberLoss"), "losses.huber"),
    **dict.fromkeys(
        ("kl_div", "KLDivLoss", "kl_divergence"),
        "losses.softmax_cross_entropy(..., soft_labels=True)",
    ),
    # a ModelProto, for which onnx.save takes a result
    **dict.fromkeys(
        ("graph", "SerializeToString", "ir_version", "opset_import"),
        "amp_rewrite.save(result, path) to save it, amp_rewrite.to_proto(result) for a ModelProto",
    ),
}
"""Name of a module or an object -> what to use."""

KEYWORDS: Mapping[str, str] = {
    "dtype": "precision",
    "keep_io": "keep_io_types",
    "ops": "deny_ops",
    "growth_interval": "increment_period dynamic_growth_steps",
    **dict.fromkeys(("batch_size", "bs"), "batch"),
    **dict.fromkeys(("atol", "tol", "tolerance", "max_error", "threshold"), "rtol"),
    **dict.fromkeys(("inputs", "dataset", "samples", "input_data"), "data feeds"),
    **dict.fromkeys(("path", "out", "output_path", "filename"), "output path"),
    **dict.fromkeys(("device", "devices", "execution_providers"), "providers"),
    **dict.fromkeys(("validation_data", "val_data", "eval_data"), "eval"),
    **dict.fromkeys(("outputs", "fetch", "output_names"), "fetches"),
    **dict.fromkeys(("init_scale", "initial_loss_scale"), "initial_loss_scale initial_scale"),
    **dict.fromkeys(("variables", "params", "parameters"), "var_list"),
}
"""Keyword argument -> the arguments here, of which the first that the function has is meant."""

REMEDIES: Mapping[str, str] = {
    "verify": "convert always verifies, and so does verify(model, result)",
    "output": "save what is returned: amp.save(result, path), or its own save(path)",
    "rtol": "use convert(model, data, rtol=...), or tune",
    "precision": "TrainingSession(train_op, precision='float16') takes it",
    **dict.fromkeys(("learning_rate", "lr"), "the optimizer takes it: optimizers.Adam(0.001)"),
}
"""Keyword argument of other functions -> what to do where a function has none of its kind."""
