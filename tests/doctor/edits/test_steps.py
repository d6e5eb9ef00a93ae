from helpers.observations import finding, loader

from brim.doctor.observation import LineTime, OptimizerSeen, TensorCalls
from brim.doctor.order import Cures


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


def test_threads_are_set_after_the_imports_or_where_they_are_set(suggested):
    lines = (LineTime("train.py:3", "optimizer.step()", "optimizer", 0.5),)
    wanted = finding("too-many-threads", cures=Cures(threads=1))
    made = suggested("import torch\nx = 1\noptimizer.step()\n", wanted, lines=lines)
    assert made == "import torch\n\ntorch.set_num_threads(1)\nx = 1\noptimizer.step()\n"
    late = "import os\nos.environ['A'] = 'b'\nimport torch\nimport numpy\nx = 1\n"
    made = suggested(late, wanted, lines=lines)
    assert made == late.replace("x = 1\n", "\ntorch.set_num_threads(1)\nx = 1\n")
    assert suggested("from torch import nn\noptimizer.step()\n\n", wanted, lines=lines) is None
    made = suggested("import torch\ntorch.set_num_threads(8)\noptimizer.step()\n", wanted, lines=lines)
    assert "set_num_threads(1)" in made and "set_num_threads(8)" not in made


def test_anomaly_detection_is_switched_off_where_it_is_switched_on(suggested):
    text = (
        "torch.autograd.set_detect_anomaly(True)\nwith autograd.detect_anomaly(check_nan=False):\n    loss.backward()\n"
        "L.Trainer(max_epochs=3, detect_anomaly=True)\n"
    )
    assert suggested(text, finding("anomaly-detection")) == (
        "torch.autograd.set_detect_anomaly(False)\nwith autograd.set_detect_anomaly(False):\n    loss.backward()\n"
        "L.Trainer(max_epochs=3, detect_anomaly=False)\n"
    )
    assert not suggested("torch.autograd.set_detect_anomaly(args.debug)\n", finding("anomaly-detection"))
