"""Names that an earlier state had -> what to use now. A row stays for one release."""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "check-models": "check takes several files, and --format and --summary",
    "inject": "in Python, amp.inject_loss_scaling(graph) puts a loss scale into a training graph",
    "kernels": "tools/make_kernel_table.py of the repository writes the table",
    "measure-costs": "op lists and --deny-op choose the types; `amp-rewrite run` times a file",
    "report": "convert MODEL --dry-run --html PAGE writes the page",
}
"""Command -> the remedy."""

FLAGS: Mapping[str, str] = {
    "--after": "leave it out: explain says of each node why it has its type, and from where",
    "--adapters": "add adapters with PEFT before the export; --freeze names what is not trained",
    "--ahead": "a loader that reads ahead, such as PyTorch's, is data in Python",
    "--arm64-folder": "verify --target cpu-arm64 emulates the arithmetic of Arm processors",
    "--average": "in Python, WeightAverage(optimizer) keeps averages",
    "--averaged": "in Python, session.export(path, averaged=True) writes the averages",
    "--best": "in Python, amp.callbacks.BestCheckpoint keeps the best checkpoint",
    "--clip-norm": "--option global-clipnorm=1.0; with a loss scale, clip_by_global_norm in Python",
    "--costs": "op lists and --deny-op choose the types",
    "--cuda-graph": "leave it out: it never ran on a GPU",
    "--eval-every": "held-out data are evaluated after every epoch",
    "--explain-casts": "--report FILE.json has every cast, with its bytes",
    "--find-learning-rate": "train for an epoch with each of some rates, and compare",
    "--group": "in Python, ParameterGroups(optimizer, [...]) makes groups of variables",
    "--lora": "add adapters with PEFT before the export; --freeze names what is not trained",
    "--lora-option": "add adapters with PEFT before the export; --freeze names what is not trained",
    "--measure": "time the files with `amp-rewrite run`",
    "train:--metric": "in Python, Trainer.train(metrics=[function]) measures what you choose",
    "--min-delta": "in Python, amp.callbacks.EarlyStopping(min_delta=...) ends training early",
    "--monitor": "in Python, amp.callbacks.EarlyStopping(monitor=...) says what to watch",
    "--no-decay": 'in Python, ParameterGroups(optimizer, no_decay="bias,norm") spares variables',
    "--no-emulate": "leave it out: nothing is emulated without --emulate",
    "--no-inline-functions": "leave it out: functions are inlined only with --inline-functions",
    "--no-strict": "leave it out; a checkpoint: session.restore(path, strict=False) in Python",
    "--no-train-dropout": "leave it out: Dropout is applied after frozen weights too",
    "--no-train-statistics": "in Python, amp.freeze(model, names, train_statistics=False) does so",
    "--non-finite": "in Python, np.argwhere(~np.isfinite(x)) finds such numbers in data",
    "--patience": "in Python, amp.callbacks.EarlyStopping(patience=...) ends training early",
    "--prefer": "for a smaller error use --data FILE --rtol X",
    "--recompute": "--accumulate makes an update of several smaller batches",
    "tune:--resume": "tune again with a longer --budget",
    "--restore": "in Python, session.restore(path) begins with a checkpoint",
    "--restore-best": "in Python, amp.callbacks.BestCheckpoint(path, restore=True) puts it back",
    "--save-costs": "op lists and --deny-op choose the types",
    "--schedule": "in Python, an optimizer takes a schedule such as CosineSchedule(1e-3, 10000)",
    "--store": "leave it out: tables of embeddings are stored in 16 bits",
    "--store-weights": "leave it out: a step reads weights in float32",
    "--subnormal-share": "leave it out: 10 % of a value's magnitude may be subnormal",
    "--tensorboard": "--metrics FILE.csv writes the rows; callbacks.Watch hands them to any writer",
    "--train-dropout": "leave it out: Dropout is applied after frozen weights too",
    "--train-statistics": "in Python, amp.freeze(model, names, train_statistics=True) does so",
    "--variable": "--freeze names what is not trained",
    "--warm-up": "in Python, an optimizer takes LinearWarmUp(rate, steps)",
    "--write-slower": "every file that passes is written; `amp-rewrite run` times it",
}
"""Option, with its command where others may mean something else by it -> the remedy."""

NAMES: Mapping[str, str] = {
    "MultiLossScaleOptimizer": "minimize one loss, the weighted sum, with LossScaleOptimizer",
    "adapters": "docs/other_tools.md has a pass of Olive and a loader of Polygraphy to copy",
    "check_folder": "call check for each model of the folder",
    "explain_after": "explain(result) says of each node why it has its type, and from where",
    "gradients": "run fetches gradients by the names that compute_gradients returns",
    "localise": "error_budget(model, data, rewritten=...) says what each rounding adds",
    "lora": "add adapters with PEFT before the export; freeze names what is not trained",
    "metrics": "Trainer.train(metrics=[...]) takes 'accuracy' and functions of labels and outputs",
    "read_training_info": "build a training step with an optimizer's minimize",
    "recompute": "use smaller batches with minimize(loss, accumulate=N) to need less memory",
    "repair_folder": "call repair for each model of the folder",
    "rounding_errors": "error_budget(model, data) says what each rounding adds",
    "settings": "assign_state sets every state, by its name",
    "store_weights": "leave it out: a step reads weights in float32",
    "write_training_info": "save the step with build_step and save",
}
"""Public name of `amp_rewrite` -> the remedy."""
