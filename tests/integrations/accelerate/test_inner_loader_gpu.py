import gc

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from brim.integrations.accelerate import prefetch

pytestmark = pytest.mark.gpu


class Words(Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, place):
        return {"ids": torch.arange(2000) + place, "x": torch.full((100,), float(place)) + torch.rand(100)}


@pytest.mark.parametrize(("workers", "pinned"), [(0, False), (2, False), (2, True)])
def test_batches_on_the_gpu_are_the_same_and_intact_while_it_computes(workers, pinned):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")

    def read(prepare):
        gc.collect()  # or a worker would, what tests before left: Accelerate's own loader forks with it
        torch.manual_seed(0)
        loader = DataLoader(Words(), batch_size=8, shuffle=True, num_workers=workers, pin_memory=pinned)
        loader, seen, load = prepare(accelerate.Accelerator().prepare(loader)), [], torch.rand(2000, 2000).cuda()
        for batch in loader:
            for _ in range(20):  # the device is behind the host
                load = (load @ load).sigmoid()  # which stays finite
            assert batch["ids"].is_cuda and batch["x"].is_cuda
            seen.append((batch["ids"].sum() + load.sum() * 0, batch["x"].sum(), loader.end_of_dataloader))
        return [(ids.item(), x.item(), is_last) for ids, x, is_last in seen]

    plain = read(lambda loader: loader)
    assert read(prefetch) == plain and len(plain) == 7 and [last for *_, last in plain].index(True) == 6
