import pytest


@pytest.fixture
def accelerator():
    """On the CPU; Accelerate keeps its state in the process, so it is cleared afterwards."""
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    from accelerate.state import AcceleratorState, GradientState

    yield lambda **more: accelerate.Accelerator(cpu=True, **more)
    GradientState._reset_state()
    AcceleratorState._reset_state(reset_partial_state=True)
