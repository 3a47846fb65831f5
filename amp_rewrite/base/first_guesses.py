"""Names that users of other packages write first, by what to write here."""

from __future__ import annotations

from collections.abc import Mapping

ATTRIBUTES: Mapping[str, str] = {
    "LossScaleOptimizer(optimizer)": "GradScaler",
    "TrainingSession(train_op, precision='float16')": "autocast",
    "optimizers.Adam().compute_gradients(loss), or minimize(loss)": "GradientTape detach",
    "optimizer.minimize(loss), and run the step in a TrainingSession": "backward",
    "optimizers.ParameterGroups(optimizer, [...])": "param_groups add_param_group",
    "TrainingSession(train_op)": "Session",
    "TrainingSession.save(path) and restore(path)": "Saver load load_weights save_weights",
    "TrainingSession.run(feeds): one step": "step zero_grad train_on_batch train_step",
    "TrainingSession.run(feeds, [value]): a value has no numbers before it": "item numpy",
    "TrainingSession.run(feeds, ['loss_scale'])": "loss_scale get_scale",
    "TrainingSession.evaluate(feeds, fetches)": "predict forward eval",
    "TrainingSession.state_dict()": "parameters trainable_variables weights get_weights",
    "TrainingSession.export(path)": "to_onnx save_model",
    "Trainer(session).train(data, epochs=...)": "fit train compile",
    "what Trainer.train returns": "history",
    "what convert, rewrite or TrainingSession.export returns": "model",
    "evaluate(model, feeds); `amp-rewrite run` prints the times": "run infer benchmark",
    "rewrite(model), or convert(model, data), which verifies": (
        "to_float16 to_fp16 convert_float_to_float16 float16 fp16 optimize quantize"
    ),
    "verify or convert without data, or `amp-rewrite inputs`": "inputs make_inputs random_inputs",
    "load": "load_model",
    "ok": "passed success is_ok",
    "report.summary": "summary",
    "save(path)": "export write to_file",
    "amp_rewrite.explain(result, node)": "explain",
    "nothing: a session begins with the model's weights": "global_variables_initializer",
    "inputs of the model, which TrainingSession.run is fed by name": "placeholder",
    "learning_rate": "lr",
    "losses.softmax_cross_entropy": "cross_entropy CrossEntropyLoss nll_loss",
    "losses.softmax_cross_entropy for classes": "SparseCategoricalCrossentropy",
    "losses.softmax_cross_entropy(..., soft_labels=True)": "kl_div KLDivLoss kl_divergence",
    "losses.sigmoid_cross_entropy": "binary_cross_entropy BCEWithLogitsLoss",
    "losses.mean_squared_error": "mse mse_loss MSELoss",
    "losses.mean_absolute_error": "mae l1_loss L1Loss",
    "losses.huber": "smooth_l1_loss huber_loss HuberLoss",
    "amp_rewrite.save(result, path), or amp_rewrite.to_proto(result) for a ModelProto": (
        "graph SerializeToString ir_version opset_import"
    ),
}
"""A name here, or what to use -> names that a module or an object has elsewhere."""

KEYWORDS: Mapping[str, str] = {
    "precision": "dtype fp16 bf16 half float16 bfloat16 mixed_precision amp",
    "keep_io_types": "keep_io",
    "deny_ops": "ops",
    "rtol": "atol tol tolerance max_error threshold",
    "data": "inputs dataset samples input_data",
    "feeds": "inputs data feed_dict",
    "fetches": "outputs fetch output_names",
    "output": "path out output_path filename",
    "path": "out output output_path filename",
    "providers": "device devices execution_providers",
    "batch": "batch_size bs",
    "labels": "label target targets y",
    "eval": "validation_data val_data eval_data",
    "initial_loss_scale": "init_scale initial_scale",
    "initial_scale": "init_scale initial_loss_scale",
    "increment_period": "growth_interval",
    "dynamic_growth_steps": "growth_interval",
    "var_list": "variables params parameters",
}
"""Keyword argument here -> those that are it elsewhere."""

REMEDIES: Mapping[str, str] = {
    "convert always verifies, and so does verify(model, result)": "verify",
    "save what is returned: amp.save(result, path), or its own save(path)": "output",
    "use convert(model, data, rtol=...), or tune": "rtol",
    "TrainingSession(train_op, precision='float16') takes it": "precision",
    "the optimizer takes it: optimizers.Adam(0.001)": "learning_rate lr",
    "save what was found, and give the file: lists='found.yaml'": "calibration tuning",
    "callbacks=[callbacks.Watch(print)] shows the progress of training": "verbose",
    "removed: explain says of each node why it has its type, and from where": "after",
    "removed: op lists and deny_ops choose the types": "costs",
    "removed: the error budget needs none": "estimate",
    "removed: time the files with `amp-rewrite run`": "measure",
    "removed: use data and rtol for a smaller error": "prefer",
    "removed: tables of embeddings are stored in 16 bits": "store",
}
"""A remedy -> keyword arguments that other functions have."""
