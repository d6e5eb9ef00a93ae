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


def test_gradients_that_are_filled_with_zeros_are_dropped_for_a_trial():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight])
    *_, setting = settings_to_try([optimizer], 2, "cuda", zeroes=True)
    weight.grad = torch.ones(2)
    setting.begin()
    optimizer.zero_grad(set_to_none=False)
    assert setting.name == "drop-gradients" and weight.grad is None
    setting.end()
    weight.grad = torch.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert weight.grad is not None


def test_anomaly_detection_is_off_for_a_trial_though_each_step_switches_it_on():
    def is_on():
        with torch.autograd.set_detect_anomaly(True):
            return torch.is_anomaly_enabled()

    (setting,) = settings_to_try([], 2, "cuda", finds_anomalies=True)
    for _ in range(2):  # there are several rounds
        setting.begin()
        assert not is_on()
        setting.end()
        assert is_on() and not torch.is_anomaly_enabled()
    with torch.autograd.set_detect_anomaly(True):
        setting.begin()
        assert not torch.is_anomaly_enabled()
        setting.end()
        assert torch.is_anomaly_enabled()
