import os

import pytest
from helpers.compiled_training import AUTO

from brim.engine.compiled import compile_report, compiled_step
from brim.engine.compiled.compiler_loading import CompilerLoading
from brim.engine.run import step_choice


@pytest.fixture(autouse=True, scope="session")
def kernels_of_this_session(tmp_path_factory):
    """What Inductor compiles in these tests is neither taken from the user's runs nor left to them."""
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = before or str(tmp_path_factory.mktemp("kernels"))
    yield
    if before is None:
        del os.environ["TORCHINDUCTOR_CACHE_DIR"]


@pytest.fixture(autouse=True)
def waits_for_the_compiler(monkeypatch):
    """Runs of tests would be over before Inductor is loaded: here it is waited for."""
    plain = CompilerLoading.begin

    def begin(self):
        plain(self)
        self._thread.join()
        if self._workers is not None:
            self._workers.result()

    monkeypatch.setattr(CompilerLoading, "begin", begin)


@pytest.fixture
def eager_to_try(monkeypatch):
    """Every run is long enough, and every gain large enough: this backend has none."""
    monkeypatch.setattr(compile_report, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(compiled_step, "decided", lambda report: ("this is a test", True))
    monkeypatch.setattr(step_choice.Compiler, "of", classmethod(lambda cls, value: AUTO if value == "auto" else None))
