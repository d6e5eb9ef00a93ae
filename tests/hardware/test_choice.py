import pytest
import torch

from brim.errors import ConfigError
from brim.hardware import Gpu, Inventory, choose_device


def machine(gpus=0, has_mps=False):
    cards = tuple(Gpu(index, f"Card {index}", 80 * 2**30) for index in range(gpus))
    return Inventory(cards, has_mps=has_mps, cores=4, python="3.11", torch="2.11")


@pytest.mark.parametrize("wanted", ["cpu", torch.device("cpu")])
def test_the_cpu_is_taken_when_asked_for_even_beside_gpus(wanted):
    choice = choose_device(wanted, machine(gpus=2))
    assert choice.device == torch.device("cpu")
    assert not choice.is_fallback
    assert "4 cores" in choice.sentence


def test_cuda_without_a_gpu_falls_back_to_the_cpu_and_says_so():
    choice = choose_device("cuda", machine())
    assert choice.device == torch.device("cpu")
    assert choice.is_fallback
    assert "no GPU found" in choice.sentence


def test_cuda_with_one_gpu_takes_it_by_index_and_names_it():
    choice = choose_device("cuda", machine(gpus=1))
    assert choice.device == torch.device("cuda", 0)
    assert not choice.is_fallback
    assert "Card 0, 80 GiB" in choice.sentence


def test_cuda_with_several_gpus_says_that_only_the_first_is_used():
    choice = choose_device("cuda", machine(gpus=3))
    assert choice.device == torch.device("cuda", 0)
    assert "3 GPUs found" in choice.sentence
    assert "torchrun --nproc-per-node=" in choice.sentence


@pytest.mark.parametrize(("most", "used", "told"), [(None, 4, "all"), (8, 4, "all"), (2, 2, "2"), (4, 4, "all")])
def test_one_process_uses_as_many_gpus_as_it_may(most, used, told):
    cards = tuple(Gpu(index, "Card", 80 * 2**30) for index in range(4))
    here = Inventory(cards, has_mps=False, cores=4, python="3.11", torch="2.11")
    choice = choose_device("cuda", here, spreads=True, most=most)
    assert choice.devices == tuple(torch.device("cuda", index) for index in range(used))
    assert f"4 GPUs found, training on {told} with DataParallel" in choice.sentence


def test_one_of_several_gpus_is_fine_when_one_was_asked_for():
    choice = choose_device("cuda", machine(gpus=3), use_multi_gpu=False)
    assert choice.device == torch.device("cuda", 0)
    assert "as asked" in choice.sentence


def test_a_numbered_gpu_is_that_one():
    choice = choose_device("cuda:2", machine(gpus=3))
    assert choice.device == torch.device("cuda", 2)
    assert "Card 2" in choice.sentence


def test_a_number_beyond_the_visible_gpus_is_an_error():
    with pytest.raises(ConfigError, match=r"cuda:3.*3 GPUs are visible"):
        choose_device("cuda:3", machine(gpus=3))


def test_a_numbered_gpu_on_a_machine_without_any_is_an_error():
    with pytest.raises(ConfigError, match="cuda:1"):
        choose_device("cuda:1", machine())


def test_mps_is_taken_where_it_is_and_refused_where_it_is_not():
    assert choose_device("mps", machine(has_mps=True)).device == torch.device("mps")
    with pytest.raises(ConfigError, match="mps"):
        choose_device("mps", machine())


@pytest.mark.parametrize("wanted", ["gpu", "cuda:x", "", None, "meta", "xpu"])
def test_anything_else_is_refused_by_name_with_what_to_use(wanted):
    with pytest.raises(ConfigError, match=r"'cuda'.*'cpu'"):
        choose_device(wanted, machine(gpus=1))


def test_auto_is_the_best_there_is_and_no_fallback():
    assert choose_device("auto", machine(gpus=1)).device == torch.device("cuda", 0)
    on_cpu = choose_device("auto", machine(gpus=0))
    assert (on_cpu.device, on_cpu.is_fallback) == (torch.device("cpu"), False)
    assert on_cpu.sentence.startswith("no GPU found, training on the CPU") and "as asked" not in on_cpu.sentence


def test_a_number_is_that_gpu():
    assert choose_device(1, machine(gpus=2)).device == torch.device("cuda", 1)
    with pytest.raises(ConfigError, match="cuda:2"):
        choose_device(2, machine(gpus=2))
