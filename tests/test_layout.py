"""The tests mirror the source: what is in ``src/brim/a/b.py`` is tested in ``tests/a/test_b.py``."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "brim"

# Parts of one thing, by the test of that thing. Types without behaviour are tested by whoever uses them, and what is of
# use to several processes at once only by real ranks.
WITHIN = {
    "cli/plan_view.py": "cli/test_plan.py",
    "cli/observe/doctor_view.py": "cli/observe/test_doctor.py",
    "workloads/outcome.py": "config/test_own_workload.py",
    "workloads/workload.py": "config/test_workload.py",
    "workloads/forecaster/data/preparation.py": "workloads/forecaster/data/test_dataset.py",
    "data/cache/fingerprint_code.py": "data/cache/test_fingerprint.py",
    "data/cache/fingerprint_files.py": "data/cache/test_fingerprint.py",
    "data/cache/folder.py": "data/cache/test_dataset.py",
    "data/cache/packed_writer.py": "data/cache/test_packed_store.py",
    "data/probing/code_references.py": "data/cache/test_fingerprint.py",
    "doctor/cures/batched_columns.py": "doctor/cures/test_applied.py",
    "doctor/cures/loader_settings.py": "doctor/cures/test_applied.py",
    "doctor/cures/side_stream.py": "doctor/cures/test_applied_gpu.py",
    "doctor/watching/profiler.py": "doctor/trace/test_reduce.py",
    "engine/captured/no_exchange.py": "ranks/test_captured_over_ranks.py",
    "engine/captured/over_ranks.py": "ranks/test_captured_over_ranks.py",
    "engine/captured/exchanged_gradients.py": "ranks/test_captured_over_ranks.py",
    "engine/distributed/gradient_exchange.py": "ranks/test_collectives.py",
    "engine/distributed/overlap.py": "ranks/test_overlap.py",
    "engine/distributed/ranks.py": "ranks/test_collectives.py",
    "engine/distributed/same_batches.py": "ranks/test_same_batches.py",
    "engine/fsdp/sharded_average.py": "ranks/test_weight_average.py",
    "engine/fsdp/sharded_evaluation.py": "ranks/test_sharded.py",
    "engine/fsdp/sharded_guard.py": "ranks/test_sharded.py",
    "engine/fsdp/sharded_step.py": "ranks/test_sharded.py",
    "engine/fsdp/sharded_training.py": "ranks/test_sharded.py",
    "engine/fsdp/shards.py": "ranks/test_sharded.py",
    "engine/fsdp/through_host.py": "ranks/test_sharded.py",
    "engine/gathering/gather.py": "ranks/test_gather.py",
    "engine/gathering/gather_session.py": "ranks/test_gather.py",
    "engine/gathering/joined_rows.py": "ranks/test_gather.py",
    "engine/numbers/gather_scope.py": "ranks/test_gather.py",
    "engine/run/run_evaluations.py": "engine/run/test_training_run.py",
    "engine/run/training_setup.py": "engine/test_trainer.py",
    "engine/run_folder/run_files.py": "engine/run/test_training_run.py",
    "engine/shares/device_events.py": "engine/shares/test_device_shares_gpu.py",
    "engine/step/gathered_gradients.py": "ranks/test_gather.py",
    "engine/step/replicated_step.py": "ranks/test_weights.py",
    "engine/step/transaction.py": "engine/step/test_guard.py",
    "engine/step/step_result.py": "engine/step/test_eager_step.py",
    "engine/state/gathered_state.py": "ranks/test_sharded.py",
    "engine/state/sharded_tensors.py": "ranks/test_sharded.py",
    "memory/as_cuda/call_recorder.py": "memory/as_cuda/test_packed.py",
    "memory/kernels/convolution_rules.py": "memory/kernels/test_convolution.py",
    "memory/kernels/reduction_launch.py": "memory/kernels/test_reduction.py",
}


def modules() -> list[str]:
    found = (path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
    return sorted(name for name in found if not name.endswith(("__init__.py", "__main__.py")))


def mirrored(module: str) -> list[Path]:
    path = Path(module)
    return sorted((TESTS / path.parent).glob(f"test_{path.stem}.py")) + sorted(
        (TESTS / path.parent).glob(f"test_{path.stem}_gpu.py")
    )


def test_every_module_has_a_test_at_its_own_path():
    missing = [module for module in modules() if not mirrored(module) and module not in WITHIN]
    assert missing == []


@pytest.mark.parametrize("module", WITHIN)
def test_an_exception_names_a_module_without_a_test_and_the_one_that_tests_it(module):
    assert module in modules() and not mirrored(module)
    assert (TESTS / WITHIN[module]).exists()


def test_every_package_says_what_comes_in_and_what_goes_out():
    packages = [path for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE]
    said = {path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in packages}
    assert [
        path for path, text in said.items() if not (re.search(r"\b[Ii]n\b", text) and re.search(r"\b[Oo]ut", text))
    ] == []
