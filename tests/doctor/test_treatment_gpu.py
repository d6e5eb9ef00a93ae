"""Cures for a GPU, each in processes of its own beside the script as it is."""

import textwrap

import pytest
from helpers.observations import finding, observed

from brim.doctor.diagnosis import Diagnosis
from brim.doctor.order import Cures
from brim.doctor.shares import Shares
from brim.doctor.time_limit import TimeLimit
from brim.doctor.treatment import treat

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

SCRIPT = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(20_000, 256), torch.randint(10, (20_000,)))
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(1000):
        for x, y in DataLoader(data, batch_size=512, shuffle=True, num_workers={workers}):
            x, y = x.to("cuda"), y.to("cuda")
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            loss.item()
"""
CURES = (
    Cures(pinned_copies=True),
    Cures(device_prefetch=True),
    Cures(resident_data=True, batched_access=True, num_workers=0),
    Cures(compile=True),
)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cures", CURES, ids=lambda cures: cures.in_words)
def test_a_script_trains_the_same_with_a_cure(tmp_path, cures, workers):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT).replace("{workers}", str(workers)))
    seen = observed(host={"device": "cuda", "compiled": True})
    found = Diagnosis(seen, Shares(1, 0, 0, 0, 0), 0.01, False, [finding("cause", cures=cures)], "", [], pace=0.1)
    (tried,) = treat(script, (), found, 600.0, lambda _: None, limit=TimeLimit(3600.0))
    assert "did not train with it" not in tried.said and tried.same_training is not False, tried
