import pytest
from helpers.observations import finding

from brim.doctor.observation import LineTime

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


def test_a_loop_that_counts_samples_counts_its_rounds_too(suggested):
    text = "for i in range(0, n, 100):\n    loss.backward()\n    print(loss)\n"
    made = suggested(text, finding("logging-every-step", "train.py:3"))
    assert made.startswith("for step, i in enumerate(range(0, n, 100)):") and "if step % 50 == 0:" in made


def test_a_file_that_is_opened_for_a_record_is_opened_less_often_too(suggested):
    text = "for i in range(9):\n    loss.backward()\n    with open('a', 'w') as file:\n        json.dump(loss, file)\n"
    made = suggested(text, finding("logging-every-step", "train.py:4"))
    assert made == text.partition("    with")[0] + (
        "    if i % 50 == 0:\n        with open('a', 'w') as file:\n            json.dump(loss, file)\n"
    )
    other = text.replace("open('a', 'w') as file", "timer:")
    assert suggested(other.replace("timer::", "timer:"), finding("logging-every-step", "train.py:4")) is None
    assert suggested(text + "        x = 1\n", finding("logging-every-step", "train.py:4")) is None


def test_collecting_garbage_in_the_loop_is_done_less_often(suggested):
    lines = (LineTime("train.py:3", "gc.collect()", "python", 0.5),)
    text = "for i in range(9):\n    loss.backward()\n    gc.collect()\n"
    made = suggested(text, finding("garbage-collection"), lines=lines)
    assert made.endswith("    if i % 50 == 0:\n        gc.collect()\n")


def test_a_while_loop_is_counted_by_its_own_counter(suggested):
    text = "while step < 9:\n    loss.backward()\n    print(loss)\n    step += 1\n"
    assert "if step % 50 == 0:\n        print(loss)" in suggested(text, finding("logging-every-step", "train.py:3"))
    assert suggested(text.replace("step += 1", "go()"), finding("logging-every-step", "train.py:3")) is None
