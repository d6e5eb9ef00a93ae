import gc

import pytest
import torch
from helpers.small_bert import arguments, bert, samples

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("more", [{}, {"bf16": True, "gradient_accumulation_steps": 2}])
def test_a_training_on_the_gpu_is_the_same_and_its_memory_is_what_was_forecast(tmp_path, more):
    from brim.integrations.transformers import BrimCallback

    def trained(callbacks):
        trainer = transformers.Trainer(
            bert(), arguments(tmp_path, use_cpu=False, dataloader_num_workers=0, full_determinism=False, **more),
            train_dataset=samples(64), callbacks=callbacks,
        )  # fmt: skip
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()  # of tests before
        torch.cuda.reset_peak_memory_stats()
        trainer.train()
        return trainer, torch.cuda.max_memory_allocated() - before

    callback = BrimCallback(prefetch=True)
    (plain, peak), (watched, _) = trained([]), trained([callback])
    for one, other in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(one, other)
    lines = [line for line in watched.state.log_history if "loss" in line]
    assert all(line["memory_allocated"] > 0 and "share/data_wait" in line for line in lines)
    assert callback.forecast is not None and callback.forecast.allocated == pytest.approx(peak, rel=0.15)
