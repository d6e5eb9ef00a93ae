from helpers.nvml import NvmlDouble, NVMLError, h200

from brim.sensors.gpus import open_gpus
from brim.sensors.nvidia_smi import NvidiaSmiGpus
from brim.sensors.nvml import NvmlGpus


def not_installed():
    raise ModuleNotFoundError("No module named 'pynvml'")


def without_a_driver():
    raise NVMLError("Driver Not Loaded")


def test_nvml_comes_first_and_needs_no_words():
    source, note = open_gpus(lambda: NvmlGpus(NvmlDouble([h200()])), find=lambda name: name)
    assert source.name == "NVML" and note == ""


def test_nvidia_smi_comes_second_and_says_what_is_missing():
    source, note = open_gpus(not_installed, find=lambda name: f"/usr/bin/{name}")
    assert isinstance(source, NvidiaSmiGpus)
    assert (
        "without SM, tensor, DRAM and PCIe activity: nvidia-ml-py is not installed (pip install nvidia-ml-py)" in note
    )


def test_without_either_there_is_one_line():
    source, note = open_gpus(without_a_driver, find=lambda name: None)
    assert source is None
    assert note == "no GPU is shown: NVML does not answer (Driver Not Loaded), and there is no nvidia-smi"
