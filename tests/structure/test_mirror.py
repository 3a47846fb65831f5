"""tests/ mirrors amp_rewrite/: the tests of a module stand where the module does."""

from __future__ import annotations

from pathlib import Path

import amp_rewrite

PACKAGE = Path(amp_rewrite.__file__).parent
TESTS = Path(__file__).parents[1]

NO_ROOMS = frozenset(
    {
        *("conformance", "corpus", "structure", "support"),
        *("benchmarks", "docs", "examples", "tools", "web"),
    }
)
"""Folders that do not test a room: other kinds of tests, and tests of what is not the package."""

OF_MORE_THAN_ONE_MODULE = {
    "cli/test_data_kept": "no command that reads data writes over them",
    "cli/test_check_files": "check of several files, for CI",
    "cli/test_html": "convert --html: the page, its evidence, and what is refused",
    "cli/test_first_commands": "what a newcomer types first: convert, inputs, explain, verify",
    "cli/test_completion": "what shells are offered: main, command_table and the options",
    "cli/test_commands": "what the commands share, and convert, explain and demo",
    "cli/test_mixed_commands": "train-step and train, one behind the other, in low precision",
    "cli/test_recorded_targets": "every command that takes the target that a model names",
    "cli/test_names": "every command, on names that hold what a terminal acts on",
    "cli/test_numerics_commands": "calibrate, localise, tune and verify on one model",
    "cli/test_terminals": "every command, with and without a terminal, of any width",
    "cli/test_shards_command": "train-step --cross-shard and train --shards, one behind the other",
    "cli/test_train_data": "train on CSV: train and the data",
    "numerics/convert/test_load_judge": "verify and convert, where ONNX Runtime loads no result",
    "numerics/test_outlier_weights": "plain conversion, where weights have outliers",
    "numerics/test_scaled_graphs": "scaling inside If, Loop and Scan, in conversion",
    "numerics/test_scaled_spellings": "scaling through every operator that scales, in conversion",
    "numerics/test_scaled_streams": "what of a scaled stream is float16, in all that rewrites",
    "numerics/test_only": "the option, in rewrite, convert and repair",
    "numerics/emulate/test_arithmetic": "operators as the whole room computes them, against numpy",
    "grad/rules/test_rows": "every rule: one table",
    "grad/test_backend_cases": "every rule on the models of the standard",
    "grad/test_empty": "every rule on axes of length 0",
    "grad/test_low_precision": "every rule after a rewrite to a low type",
    "grad/test_unknown_shapes": "every rule without recorded shapes",
    "rewriting/paint/test_formulas_in_graphs": "formulas of all kinds in branches, loops and calls",
    "rewriting/test_low_sources": "api, widen and the report, on models in 16 bits",
    "rewriting/apply/test_checked": "onnx's checker on what is about to be written",
    "rewriting/plan/test_free_lengths": "the option, in every rule about sizes",
    "rewriting/apply/test_rewritten_weights": "constants of a rewritten model, saved or as objects",
    "rewriting/test_kernel_first": "functions that have the name of an operator, in every room",
    "values/intervals/test_random_graphs": "every transfer rule, on generated models",
    "graph/io/test_bad_input": "every reader, on files that are wrong",
    "graph/io/test_contradicted_shapes": "declared shapes that are wrong, wherever an opset moves",
    "graph/io/test_judged_file": "files that a judge refuses, whoever saves",
    "graph/io/test_mutations": "everything from a file to a rewritten one, on mutants of models",
    "training/inject/test_errors": "what the room refuses",
    "training/inject/test_foreign_step": "the room on a step that another package made",
    "training/inject/test_own_step": "the room on steps of this package",
    "training/loss_scaling/test_loss_scales": "each, against one table",
    "training/optimizers/test_constraint": "apply_updates, of variables with a constraint",
    "training/optimizers/test_tensorflow_numbers": "rules/tensorflow, against one table",
    "training/loss_scaling/test_sessions": "steps with a loss scale, in a session",
    "training/loss_scaling/test_skipped_steps": "finite checks, in a session",
    "training/loss_scaling/test_trajectories": "against the rules of other frameworks",
    "training/losses/test_losses": "every loss, against one table",
    "oplists/test_oplists": "the lists, their environment and levels",
    "training/optimizers/test_rules": "every rule of rules/, against one table",
    "page/test_browser": "the static files of the page, in a browser",
    "rewriting/plan/test_random_models": "the room on generated models",
    "training/session/test_session_memory": "what a session takes of memory, as a whole",
    "training/session/test_low_sessions": "sessions of steps in float16 and bfloat16",
    "training/step/test_random_steps": "steps of generated models",
    "training/step/test_recurrent_steps": "steps of models whose sequences have any length",
    "training/step/test_step_backward": "what of a step says of the backward pass",
    "loop/test_updates": "steps that accumulate gradients, in the loop, on shards",
    "training/test_combinations": "everything that can be combined in a step, drawn at random",
    "training/test_files_made_elsewhere": "every reader of training, on files that were changed",
    "training/test_gpu_parts": "what a CUDA device needs, in the gate and in a session",
    "training/test_long_runs": "what training holds, loses and keeps in the long run",
    "training/test_mixed_training": "whole trainings in low precision",
    "training/test_real_training": "whole trainings in float32",
    "training/test_openvino_training": "whole trainings on OpenVINO",
    "training/test_openvino_convergence": "whole trainings in bfloat16 beside those in float32",
    "training/session/test_export_modes": "export beside evaluate, whatever mode a model is in",
    "training/optimizers/test_torch": "every rule of rules/, against PyTorch",
    "training/test_steep_gradients": "rows of zeros: the pass, the gradients and a session",
    "training/test_webgpu_training": "whole trainings in real float16",
    "training/graph/test_untouched": "what reads a model and what fails, in all of training",
    "rewriting/paint/test_unrolled": "keep-states, where exporters unrolled a loop",
    "values/counts/test_fact": "what is known of counts, apart from what operators make of them",
    "values/magnitudes/test_outlier_rules": "outliers, operator by operator",
    "values/intervals/test_extremes": "every rule of the room, on extreme constants",
    "numerics/convert/test_steps": "all steps of a conversion, in Python and as a command",
    "numerics/compare/test_trusted_verdicts": "what a verdict counts and excuses: the whole room",
}
"""Files that test no single module -> what they test."""


def files() -> list[Path]:
    """Return the test files of rooms, relative to tests/."""
    found = (path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))
    return sorted(path for path in found if path.parts[0] not in NO_ROOMS)


def module_of(path: Path) -> Path:
    """Return the module that a test file is named after, whether it exists or not."""
    return PACKAGE / path.parent / path.name.removeprefix("test_")


def test_every_folder_of_tests_is_a_room_or_has_another_purpose() -> None:
    folders = {path.parent for path in files()}
    assert [f for f in sorted(folders) if not (PACKAGE / f).is_dir()] == []


def test_every_test_file_is_named_after_its_module_or_says_what_it_tests() -> None:
    without = {p.with_suffix("").as_posix() for p in files() if not module_of(p).is_file()}
    assert without == set(OF_MORE_THAN_ONE_MODULE)


def test_every_painting_pass_has_a_test_file() -> None:
    passes = {p.name for p in (PACKAGE / "rewriting" / "paint" / "passes").glob("*.py")} - {
        "__init__.py"
    }
    tests = {p.name for p in (TESTS / "rewriting" / "paint" / "passes").glob("test_*.py")}
    assert {f"test_{name}" for name in passes} == tests
