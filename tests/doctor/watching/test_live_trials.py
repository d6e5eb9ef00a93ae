import torch

from brim.doctor.watching.live_trials import settings_to_try


def names(*arguments):
    return [(setting.name, setting.value) for setting in settings_to_try(*arguments)]


def test_threads_are_tried_on_a_cpu_only(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert names([], 2, "cpu") == [("threads", 1), ("threads", 2)]
    assert names([], 8, "cpu") == [("threads", 1)]
    assert names([], 2, "cuda") == []


def test_a_fused_update_is_tried_where_there_are_many_tensors_and_undone():
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(20)]
    optimizer = torch.optim.Adam(weights, foreach=True)
    (setting,) = settings_to_try([optimizer], 2, "cuda")
    setting.begin()
    assert optimizer.param_groups[0]["fused"] is True and optimizer.param_groups[0]["foreach"] is False
    for weight in weights:
        weight.grad = torch.ones(2)
    optimizer.step()
    setting.end()
    assert optimizer.param_groups[0]["fused"] is None and optimizer.param_groups[0]["foreach"] is True
    optimizer.step()
    assert names([torch.optim.Adam(weights[:2])], 2, "cuda") == []


def test_all_optimizers_of_a_script_are_fused_at_once():
    pair = [torch.optim.Adam([torch.nn.Parameter(torch.ones(2)) for _ in range(20)]) for _ in range(2)]
    (setting,) = settings_to_try(pair, 2, "cuda")
    setting.begin()
    assert all(optimizer.param_groups[0]["fused"] for optimizer in pair)
    setting.end()
    assert not any(optimizer.param_groups[0]["fused"] for optimizer in pair)
