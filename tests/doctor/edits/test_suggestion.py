import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.observations import loader, observed

from brim.doctor.edits.suggestion import suggestions
from brim.doctor.observation import LineTime, OptimizerSeen, TensorCalls, read_observation
from brim.doctor.order import Cures
from brim.doctor.rules.examine import examine
from brim.doctor.rules.finding import Finding
from brim.doctor.shares import shares

PLANTED = Path(__file__).parents[1] / "planted"
RECORDED = Path(__file__).parents[1] / "recorded"


def finding(cause, line="", **more):
    return Finding(cause, "what", "evidence", "cure", 0.5, line=line, **more)


@pytest.fixture
def suggested(tmp_path):
    """The text of train.py with the diff for a finding applied by git, or None where no diff is made."""

    def make(text, found, **seen):
        script = tmp_path / "train.py"
        script.write_bytes(text.encode())
        made = suggestions(replace(observed(**seen), files=(str(script),)), [found], tmp_path)
        if not made:
            return None
        (only,) = made
        applied = subprocess.run(["git", "apply", "-p1"], cwd=tmp_path, input=only.diff.encode(), capture_output=True)
        assert applied.returncode == 0, applied.stderr
        assert script.read_bytes().decode() == only.text
        script.write_bytes(text.encode())
        return only.text

    return make


ARGUMENTS = [
    ("DataLoader(data, batch_size=4)", "DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True)"),
    ("DataLoader(data, 4, num_workers=args.n,)", "DataLoader(data, 4, num_workers=2, persistent_workers=True,)"),
    ("DataLoader(data, 4, True, None, None, 8)", "DataLoader(data, 4, True, None, None, 2, persistent_workers=True)"),
    ("torch.utils.data.DataLoader(dätä)", "torch.utils.data.DataLoader(dätä, num_workers=2, persistent_workers=True)"),
    ("DataLoader(data, **options)", None),
    ("DataLoader(*arguments)", None),
    ("DataLoader((data))", None),
    ("make(data)", None),
]


@pytest.mark.parametrize(("before", "after"), ARGUMENTS)
def test_loader_arguments_are_set_where_the_loader_is_made(suggested, before, after):
    wanted = finding("no-workers", cures=Cures(num_workers=2, persistent_workers=True))
    text = "import torch\n# é\nloader = {}  # all of it\n"
    made = suggested(text.format(before), wanted, loaders=(loader(line="train.py:3"),))
    assert made == (None if after is None else text.format(after))


def test_loader_arguments_over_several_lines_keep_their_form(suggested):
    text = "loader = DataLoader(\n    data,\n    batch_size=4,  # small\n    prefetch_factor=4,\n)\n"
    made = suggested(
        text, finding("workers-cost-more", cures=Cures(num_workers=0)), loaders=(loader(line="train.py:1"),)
    )
    assert "prefetch_factor=None, num_workers=0,\n)" in made and "batch_size=4,  # small" in made


def test_windows_line_ends_and_a_last_line_without_an_end_are_kept(suggested):
    text = "loader = DataLoader(\r\n    data)\r\nx = 1"
    wanted = finding("no-workers", cures=Cures(num_workers=2))
    made = suggested(text, wanted, loaders=(loader(line="train.py:1"),))
    assert made == "loader = DataLoader(\r\n    data, num_workers=2)\r\nx = 1"


LOOP = """\
import torch

for epoch in range(3):
    for x, y in loader:
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        {}
"""
LINES = [
    (
        "print(loss.item())",
        "if step % 50 == 0:\n            print(loss.item())",
        "for step, (x, y) in enumerate(loader):",
    ),
    ("total += loss.item()", "total += loss.detach()", "for x, y in loader:"),
    ("losses.append(loss.detach().cpu().item())", "losses.append(loss.detach())", "for x, y in loader:"),
    ("if loss.item() < best: best = 1", None, None),
    ('log("""a\n b""")', None, None),
]


@pytest.mark.parametrize("cause", ["logging-every-step", "sync-in-the-loop"])
@pytest.mark.parametrize(("before", "after", "head"), LINES)
def test_reading_and_printing_in_every_step_are_done_less_often_or_not(suggested, cause, before, after, head):
    made = suggested(LOOP.format(before), finding(cause, "train.py:8"))
    if after is None:
        assert made is None
    else:
        assert made == LOOP.format(after).replace("for x, y in loader:", head)


@pytest.mark.parametrize(
    ("head", "name"),
    [("for i in range(9):", "i"), ("for n, b in enumerate(loader):", "n"), ("for k in tqdm(range(9), ncols=8):", "k")],
)
def test_a_loop_that_counts_is_not_counted_again(suggested, head, name):
    text = f"{head}\n\tloss.backward()\n\tprint(loss)\n"
    made = suggested(text, finding("logging-every-step", "train.py:3"))
    assert made == f"{head}\n\tloss.backward()\n\tif {name} % 50 == 0:\n\t\tprint(loss)\n"


def test_a_while_loop_is_counted_by_its_own_counter(suggested):
    text = "while step < 9:\n    loss.backward()\n    print(loss)\n    step += 1\n"
    assert "if step % 50 == 0:\n        print(loss)" in suggested(text, finding("logging-every-step", "train.py:3"))
    assert suggested(text.replace("step += 1", "go()"), finding("logging-every-step", "train.py:3")) is None


def test_batches_are_copied_from_pinned_memory_without_waiting(suggested):
    text = "loader = DataLoader(data)\nfor x, y in loader:\n    x, y = x.to(device), y.cuda()\n"
    calls = tuple(TensorCalls(name, "train.py:3", "", "to device", 1.0, 1e-3) for name in ("to", "cuda"))
    made = suggested(text, finding("copy-not-pinned"), loaders=(loader(line="train.py:1"),), calls=calls)
    assert "DataLoader(data, pin_memory=True)" in made
    assert "x, y = x.to(device, non_blocking=True), y.cuda(non_blocking=True)" in made


def test_gradients_are_dropped_instead_of_filled(suggested):
    text = "optimizer.zero_grad(set_to_none=False)\nmodel.zero_grad(False)\nother.zero_grad(set_to_none=True)\n"
    made = suggested(text, finding("zero-grad-fills"))
    assert made == "optimizer.zero_grad()\nmodel.zero_grad()\nother.zero_grad(set_to_none=True)\n"


def test_every_optimizer_of_the_kind_is_fused(suggested):
    text = "a = torch.optim.AdamW(p, lr=1, foreach=False)\nb = AdamW(q)\nc = LBFGS(p)\n"
    seen = OptimizerSeen("AdamW", 9, 9, None, None, 1.0)
    made = suggested(text, finding("optimizer-not-fused"), optimizers=(seen,))
    assert made == "a = torch.optim.AdamW(p, lr=1, fused=True)\nb = AdamW(q, fused=True)\nc = LBFGS(p)\n"


def test_results_of_an_evaluation_are_copied_once(suggested):
    text = (
        "for x in loader:\n    outputs.append(model(x).argmax(1).detach().cpu().numpy())\n"
        "result = np.concatenate(outputs, axis=0)\n"
    )
    made = suggested(text, finding("evaluation", "train.py:2"))
    assert "outputs.append(model(x).argmax(1))" in made
    assert "result = torch.cat(outputs, dim=0).detach().cpu().numpy()" in made
    assert suggested(text + "print(outputs)\n", finding("evaluation", "train.py:2")) is None


def test_columns_go_into_brims_loader_with_the_same_order_of_an_unshuffled_one(suggested):
    text = '"""Training."""\nimport torch\nloader = DataLoader(data, 64, num_workers=4, pin_memory=True)\n'
    columns = loader(line="train.py:3", columns=True)
    made = suggested(text, finding("per-sample-access"), loaders=(columns,))
    assert (
        made == '"""Training."""\nimport torch\nimport brim\nloader = brim.Loader(data, batch_size=64, shuffle=False)\n'
    )
    assert (
        suggested(text.replace("pin_memory=True", "sampler=s"), finding("per-sample-access"), loaders=(columns,))
        is None
    )
    assert suggested(text + "loader.dataset\n", finding("per-sample-access"), loaders=(columns,)) is None
    assert suggested(text, finding("per-sample-access"), loaders=(replace(columns, columns=False),)) is None


def test_brims_loader_gives_what_the_script_would_get():
    import brim

    data = torch.utils.data.TensorDataset(torch.arange(10), torch.arange(10.0))
    plain = [[column.tolist() for column in batch] for batch in torch.utils.data.DataLoader(data, batch_size=4)]
    assert [[column.tolist() for column in batch] for batch in brim.Loader(data, batch_size=4, shuffle=False)] == plain


STEP = """\
import torch

def main():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = torch.nn.MSELoss()
    for epoch in range(2):
        for x, y in batches:
            x = x * 2
            optimizer.zero_grad()
            output = model(x)
            loss = criterion(output, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())

main()
"""


def own_step(suggested, text, line="train.py:15"):
    lines = (LineTime(line, "optimizer.step()", "optimizer", 0.5),)
    return suggested(text, finding("too-little-compute"), host={"device": "cuda"}, lines=lines)


def losses_of(text):
    torch.manual_seed(0)
    batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)]
    names = {"batches": batches, "losses": []}
    exec(compile(text, "train.py", "exec"), names)
    return names["losses"]


def test_a_plain_loop_with_brims_step_trains_the_same(suggested):
    made = own_step(suggested, STEP)
    assert "training_step = brim.Step(model, optimizer, loss_of_batch, clip_norm=0.5)" in made
    assert "            loss = training_step((x, y))\n            losses.append(loss.item())" in made
    assert losses_of(made) == pytest.approx(losses_of(STEP), rel=1e-6)


def test_a_loss_without_a_name_is_returned_by_the_function(suggested):
    text = STEP.replace("            loss = criterion(output, y)\n", "").replace(
        "loss.backward", "criterion(output, y).backward"
    )
    text = text.replace("            losses.append(loss.item())\n", "")
    made = own_step(suggested, text, "train.py:14")
    assert made is None  # what it depends on is no single assignment: refused
    text = text.replace("            output = model(x)\n", "").replace("criterion(output, y)", "criterion(model(x), y)")
    made = own_step(suggested, text, "train.py:13")
    assert "return criterion(model(x), y)" in made and "            training_step((x, y))\n" in made


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("losses.append(loss.item())", "losses.append(output)"),  # used outside of the loss
        ("            optimizer.step()", "            if epoch:\n                optimizer.step()"),  # accumulation
        ("loss.backward()", "scaler.scale(loss).backward()"),
        ("            loss.backward()", "            print(loss)\n            loss.backward()"),
        ("    for epoch in range(2):\n", "    while True:\n        main()\n    for epoch in range(2):\n"),
        ("model.parameters(), lr=0.1", "[*model.parameters(), *head.parameters()], lr=0.1"),
    ],
)
def test_a_loop_of_another_form_is_left_alone(suggested, old, new):
    assert old in STEP
    assert own_step(suggested, STEP.replace(old, new)) is None


def test_threads_are_set_after_the_imports_or_where_they_are_set(suggested):
    lines = (LineTime("train.py:3", "optimizer.step()", "optimizer", 0.5),)
    wanted = finding("too-many-threads", cures=Cures(threads=1))
    made = suggested("import torch\nx = 1\noptimizer.step()\n", wanted, lines=lines)
    assert made == "import torch\n\ntorch.set_num_threads(1)\nx = 1\noptimizer.step()\n"
    made = suggested("import torch\ntorch.set_num_threads(8)\noptimizer.step()\n", wanted, lines=lines)
    assert "set_num_threads(1)" in made and "set_num_threads(8)" not in made


def test_files_of_the_same_name_are_not_mixed_up(tmp_path):
    files = [tmp_path / "train.py", tmp_path / "other" / "train.py"]
    files[1].parent.mkdir()
    for file in files:
        file.write_text("loader = DataLoader(data)\n")
    seen = replace(observed(loaders=(loader(line="train.py:1"),)), files=tuple(map(str, files)))
    assert suggestions(seen, [finding("no-workers", cures=Cures(num_workers=2))], tmp_path) == []


@pytest.mark.parametrize("text", ["loader = DataLoader(data\n", "\ufeffloader = DataLoader(data)\n", "a = 1\rb = 2\r"])
def test_files_that_cannot_be_read_for_certain_get_no_diff(suggested, text):
    wanted = finding("no-workers", cures=Cures(num_workers=2))
    assert suggested(text, wanted, loaders=(loader(line="train.py:1"),)) is None


@pytest.mark.parametrize("file", sorted(RECORDED.glob("*.json")), ids=lambda file: file.stem)
def test_diffs_of_planted_scripts_are_python(file, tmp_path):
    seen = replace(read_observation(file.read_text()), files=(str(PLANTED / f"{file.stem}.py"),))
    for made in suggestions(seen, examine(seen, shares(seen)), PLANTED):
        compile(made.text, made.path, "exec")
        assert made.diff.startswith(f"--- a/{file.stem}.py\n")
