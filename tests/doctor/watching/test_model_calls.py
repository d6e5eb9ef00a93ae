import torch

from brim.doctor.watching.model_calls import ModelCalls


def test_the_first_call_in_a_step_tells_the_line_and_the_samples():
    frames = []
    calls = ModelCalls(frames.append)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    calls.install()
    try:
        with torch.no_grad():
            model(torch.ones(9, 2))  # not for training
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                model(torch.ones(3, 2))
            calls.begin_step()
    finally:
        calls.remove()
    model(torch.ones(5, 2))
    assert len(frames) == 2 and calls.samples == 3 and calls.autocast and calls.data_parallel == 0
