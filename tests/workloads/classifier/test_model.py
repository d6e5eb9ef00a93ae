import pytest
import torch

from brim.errors import ConfigError
from brim.workloads.classifier import ConvClassifier
from brim.workloads.classifier.model import Stage


def test_a_batch_may_be_computed_in_parts():
    torch.manual_seed(0)
    model = ConvClassifier(["a", "b"], "picture", (3, 16, 16), width=4, depth=2)
    pictures = torch.randint(0, 256, (6, 3, 16, 16), dtype=torch.uint8)
    parts = torch.cat([model(pictures[:1]), model(pictures[1:])])
    torch.testing.assert_close(model(pictures), parts)


def test_it_is_built_again_from_its_arguments():
    model = ConvClassifier(["a", "b"], "sound", (400,), rate=4000, width=4, depth=1, bands=8)
    other = ConvClassifier(**model.arguments)
    other.load_state_dict(model.state_dict())
    sounds = torch.randn(2, 400)
    assert torch.equal(model(sounds), other(sounds))
    assert other.spec == model.spec


@pytest.mark.parametrize("odd", [{"depth": 10**9}, {"width": 0}, {"rate": 10**12}])
def test_sizes_that_no_run_has_are_refused_before_they_take_memory(odd):
    with pytest.raises(ConfigError, match="there is no model with"):
        ConvClassifier(["a", "b"], "sound", (400,), **{"rate": 4000, **odd})


def test_an_example_batch_goes_through_the_model():
    model = ConvClassifier(["a", "b"], "array", (1, 8, 8), dtype="float32", width=4, depth=1)
    inputs, labels = model.example_batch(3)
    assert (inputs.dtype, model(inputs).shape, labels.shape) == (torch.float32, (3, 2), (3,))


@pytest.mark.parametrize("size", [31, 32])
def test_the_short_way_is_a_strided_convolution_without_one(size):
    """One of oneDNN's kernels for strided 1x1 convolutions damages memory."""
    stage = Stage(16, 16)
    assert all(one.stride == (1, 1) for one in stage.modules() if getattr(one, "kernel_size", 0) == (1, 1))
    features = torch.randn(2, 16, size, size).contiguous(memory_format=torch.channels_last)
    strided = torch.nn.functional.conv2d(features, stage.short.weight, stage.short.bias, stride=2)
    expected = torch.relu(stage.second(stage.first(features)) + strided)
    torch.testing.assert_close(stage(features), expected)
