"""The recommender in stages over ranks: one builds the kept encodings, and all train what one alone would."""

from pathlib import Path

import pytest
import torch
from rank_training import are_the_same_bits, this_rank

from brim.config import load_config
from brim.config.workload import open_workload

pytestmark = pytest.mark.slow


def train_in_stages(run, encodings):
    settings = [
        "data.n_users=30", "data.n_items=40", "model.embed_dim=8", "model.hidden_dim=8", "train_ds.batch_size=128",
        "trainer.device=cpu", "trainer.threads=1", f"trainer.run_dir={run}", "trainer.loggers=false",
        "trainer.restore_best=false", "trainer.patience=null", "trainer.optimizer=SGD", "trainer.lr=0.5",
        f"model.encodings_dir={encodings}",
        "stages=[{epochs: 1}, {epochs: 1, use_cache: false, freeze_gpt2: false, lr: 0.2, encoder_lr: 0.01}]",
    ]  # fmt: skip
    trainer = open_workload(load_config(None, settings)).build_trainer()
    for module in trainer.model.modules():  # which draws other numbers on each rank
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attn_dropout", None), float):
            module.attn_dropout = 0.0
    trainer.model.build_cache()
    result = trainer.fit()
    return {"rank": this_rank(), "steps": result.steps, "weights": trainer.model.state_dict()}


def test_two_ranks_train_in_stages_what_one_does(launch, tmp_path):
    (alone,) = launch(1, train_in_stages, run=str(tmp_path / "alone"), encodings=str(tmp_path / "one"))
    first, second = launch(2, train_in_stages, run=str(tmp_path / "both"), encodings=str(tmp_path / "two"))
    assert are_the_same_bits(first, second)
    assert first["steps"] == alone["steps"]
    for name, weight in alone["weights"].items():
        torch.testing.assert_close(first["weights"][name], weight, atol=1e-5, rtol=1e-4, msg=name)
    entries = [sorted(path.name for path in Path(tmp_path / folder).iterdir()) for folder in ("one", "two")]
    assert entries[0] == entries[1]
    assert len(entries[0]) == 2  # of users and of items, and nothing half
