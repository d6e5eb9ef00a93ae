import pytest

import brim
from brim.engine.calling.compiler import Compiler
from brim.errors import ConfigError


def test_what_compile_says_becomes_a_compiler():
    assert Compiler.of(False) is None
    assert (Compiler.of(True).backend, Compiler.of(True).is_auto, Compiler.of(True).per) == ("inductor", False, "model")
    assert (Compiler.of("auto").is_auto, Compiler.of("auto").per) == (True, "block")
    assert Compiler.of("max-autotune-no-cudagraphs").arguments()["options"]["max_autotune"]
    assert Compiler.of("aot_eager").arguments() == {"backend": "aot_eager"}


def test_random_numbers_are_those_of_eager_steps_unless_others_are_asked_for():
    assert Compiler.of(True).arguments()["options"]["fallback_random"] is True
    assert Compiler.of({"random": "fast", "per": "block"}).arguments()["options"]["fallback_random"] is False


def test_graphs_of_torchs_modes_are_left_to_brims_own_capture():
    for mode in ("reduce-overhead", "max-autotune"):
        assert Compiler.of(mode).has_graphs
        assert Compiler.of(mode).arguments()["options"]["triton.cudagraphs"] is False


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("max-autotun", "did you mean 'max-autotune'"),
        ({"modes": "default"}, "did you mean 'mode'"),
        ({"random": "slow"}, "is not known"),
        ({"backend": "eager", "mode": "max-autotune"}, "leave 'backend' out"),
    ],
)
def test_what_it_cannot_mean_is_refused(value, told):
    with pytest.raises(ConfigError, match=told):
        Compiler.of(value)


def test_a_mode_that_is_nothing_but_graphs_is_refused_without_capture():
    import torch

    with pytest.raises(ConfigError, match="leave capture='auto'"):
        brim.Trainer(torch.nn.Linear(1, 1), [], device="cpu", compile="reduce-overhead", capture="off")
