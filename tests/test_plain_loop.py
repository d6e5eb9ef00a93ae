"""Five lines of brim in a loop of one's own: what they change in the file, and nothing in the weights."""

import difflib
from pathlib import Path

import pytest
import torch
from helpers.faults import Above, Gate
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROOT = Path(__file__).parents[1]
BEFORE, AFTER, DIFF = (
    ROOT / "examples" / name for name in ("plain_loop_before.py", "plain_loop.py", "plain_loop.diff")
)


def code_of(path: Path) -> list[str]:
    """The lines of a file after its docstring."""
    return path.read_text().split('"""', 2)[2].splitlines(keepends=True)


def names(path: Path) -> dict[str, object]:
    scope: dict[str, object] = {"__name__": path.stem}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_diff_is_that_of_the_two_files_and_has_five_new_lines():
    made = list(difflib.unified_diff(code_of(BEFORE), code_of(AFTER), "plain_loop_before.py", "plain_loop.py", n=1))
    changes = [line for line in made if not line.startswith(("@@", "---", "+++"))]
    assert DIFF.read_text() == "".join([*made[:2], *(line for line in made[2:] if not line.startswith("@@"))])
    assert sum(line.startswith("+") and line.strip() != "+" for line in changes) == 5
    assert sum(line.startswith("-") for line in changes) == 6


def test_both_loops_end_with_the_same_bits(capsys):
    before, after = (names(path)["main"](samples=300, epochs=2) for path in (BEFORE, AFTER))
    assert all(torch.equal(value, after.state_dict()[name]) for name, value in before.state_dict().items())
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_the_second_goes_on_where_memory_runs_out_and_the_first_does_not(capsys):
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)

    def model(most: int) -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 8), Gate(Above(most)), nn.Linear(8, 1))

    whole, parts = model(most=16), model(most=4)
    with pytest.raises(torch.OutOfMemoryError):
        names(BEFORE)["train"](model(most=4), loader, "cpu", 1)
    names(BEFORE)["train"](whole, loader, "cpu", 2)
    names(AFTER)["train"](parts, loader, "cpu", 2)
    assert torch.allclose(whole[0].weight, parts[0].weight, atol=1e-6)
    assert "out of memory" in capsys.readouterr().err


@pytest.mark.gpu
def test_on_a_gpu_both_end_with_the_same_weights_but_for_rounding():
    before, after = (names(path)["main"](samples=4_096, epochs=2) for path in (BEFORE, AFTER))
    for name, value in before.state_dict().items():
        assert torch.allclose(value, after.state_dict()[name], atol=1e-4), name


def test_the_benchmark_measures_both_side_by_side(soaking, monkeypatch):
    import plain_loop

    monkeypatch.setattr(plain_loop, "STRETCH", 1)
    batches = [(torch.randn(4, 3, 8), torch.randn(4, 1))]
    times = plain_loop.measure(batches, steps=2, warm_up=1, device="cpu", rounds=2)
    rows = plain_loop.rows_of(times)
    assert set(rows) == {"plain loop", "with brim"} and rows["plain loop"]["ratio"] == 1
    assert all(len(row["rounds"]) == 2 and row["microseconds"] > 0 for row in rows.values())
