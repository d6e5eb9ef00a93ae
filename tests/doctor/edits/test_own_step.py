import pytest
import torch
from helpers.observations import finding

from brim.doctor.observation import LineTime

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
