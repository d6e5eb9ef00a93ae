"""What all tests share: GPU tests say why they are skipped, property tests stay short, trainings are told apart."""

import ctypes
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from torch import Tensor, nn

import brim
from brim.engine.captured import trial
from brim.engine.captured.payoff import prospects
from brim.engine.captured.payoff.decision import TRY, Decision
from brim.engine.checkpoints import saver
from brim.engine.step.planned_step import PlannedStep
from brim.sensors.duty_cycle import DutyCycleSensor

pytest.register_assert_rewrite("helpers")
LONGEST = Path(__file__).parent / "ranks"  # few tests, each of seconds
hypothesis.settings.register_profile("all", max_examples=50, deadline=None, database=None)
hypothesis.settings.register_profile("fast", max_examples=8, deadline=None, database=None, derandomize=True)


@pytest.fixture(autouse=True, scope="session")
def nothing_remembered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is measured in tests is not remembered for the user, nor the other way round."""
    before = os.environ.get("BRIM_CACHE")
    os.environ["BRIM_CACHE"] = str(tmp_path_factory.mktemp("brim-cache"))
    yield
    if before is None:
        del os.environ["BRIM_CACHE"]
    else:
        os.environ["BRIM_CACHE"] = before


@pytest.fixture(autouse=True, scope="session")
def _no_checkpoint_left_out() -> Iterator[None]:
    """Which checkpoints there are is no matter of how busy the machine is: a save that takes long is waited for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saver, "PATIENCE_S", 600.0)
        yield


@pytest.fixture(autouse=True)
def capture_is_tried(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs of tests on a GPU are too short for capturing to pay; that it is right is shown by trying it anyway."""
    with pytest.MonkeyPatch.context() as patch:  # one of its own: that of a test is to end before its folder does
        if request.node.get_closest_marker("gpu") is not None:
            patch.setattr(prospects, "MOST_WAITS", 0)
            patch.setattr(prospects, "decide", lambda *_: Decision(TRY))
            patch.setattr(prospects, "was_wasted", lambda *_: False)
        yield


@pytest.fixture(autouse=True, scope="module")
def _quick_collections() -> None:
    """Leave what is there before a file's tests out of garbage collections: steps out of memory make many of them."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs go to an empty folder: ``pytestmark = pytest.mark.usefixtures("own_folder")``."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def soaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the benchmarks can be imported."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))


def pytest_configure(config: pytest.Config) -> None:
    """Where slow tests are left out, property tests try fewer examples, and the same ones every time."""
    hypothesis.settings.load_profile("fast" if "not slow" in config.option.markexpr else "all")
    gc.disable()  # what is collected stays, and would be looked at again and again


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before slow ones are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _mark_slow_cases(items)
    items.sort(key=lambda item: not item.path.is_relative_to(LONGEST))  # so that all workers end together
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _mark_slow_cases(items: list[pytest.Item]) -> None:
    """Of a test with ``@pytest.mark.matrix(n)``, n cases are run always; the others are slow.

    Multiples of the golden ratio spread those over all parameters, whatever their numbers.
    """
    matrices: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("matrix"):
            matrices.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in matrices.values():
        by_turn = sorted(range(len(cases)), key=lambda at: at * 0.618034 % 1)
        for at in by_turn[cases[0].get_closest_marker("matrix").args[0] :]:
            cases[at].add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """A file of tests that imports a package which is not installed is skipped with a reason."""
    report = yield
    return _skipped_where_lacking(report, collector.path, getattr(report, "call", None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """And so is a test."""
    report = yield
    return _skipped_where_lacking(report, item.path, call)


def _skipped_where_lacking(report: Any, path: Path, call: pytest.CallInfo[Any] | None) -> Any:
    from helpers.optional import lacking  # not before its asserts are rewritten

    reason = lacking(call.excinfo.value) if report.failed and call and call.excinfo else None
    if reason is not None:
        report.outcome, report.longrepr = "skipped", (str(path), 0, f"Skipped: {reason}")
    return report


@pytest.fixture(autouse=True)
def ctrl_c_as_python_has_it():
    """Whatever was run before, and though a shell ignores it for what runs in the background."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


@dataclass
class Trained:
    """What came of one training. ``report`` is its CaptureReport, ``random`` the state of the GPU's generator."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    losses: list[float]
    report: Any
    random: Tensor
    trainer: Any = None
    folder: Path | None = None
    metrics: dict[str, float] | None = None

    def differs_from(self, other: "Trained") -> float:
        """The norm-relative difference over all weights and statistics."""
        mine, theirs = self._numbers(), other._numbers()
        return float((mine - theirs).norm() / theirs.norm())

    def equals(self, other: "Trained") -> bool:
        """Whether all weights and buffers are the same to the bit."""
        mine, theirs = self.model.state_dict(), other.model.state_dict()
        return all(torch.equal(mine[name], theirs[name]) for name in theirs)

    @property
    def is_accounted_for(self) -> bool:
        """Whether each step was made by a replay or eagerly, and some by replays."""
        return bool(self.report.captured and 0 < self.report.replays == len(self.losses) - self.report.eager)

    def _numbers(self) -> Tensor:
        parts = [part for part in self.model.state_dict().values() if part.is_floating_point()]
        return torch.cat([part.detach().double().flatten() for part in parts])


class KeepLosses(brim.Callback):
    """Every loss as the trainer hands it over, read at the end, and where the GPU's generator stands then."""

    def __init__(self) -> None:
        self.losses: list[Tensor] = []
        self.random = torch.empty(0)

    def on_fit_end(self, trainer: brim.Trainer) -> None:
        self.random = torch.cuda.get_rng_state()

    def on_step_end(self, trainer: brim.Trainer, step: int, loss: Tensor) -> None:
        self.losses.append(loss)


class Twins:
    """Trainings from the same beginning, of which one makes every step eagerly: what capturing must not change."""

    LR = 2.0**-10  # exact as a double on the host and as a float on the device

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = 0

    def __call__(self, model: Callable[..., nn.Module], data: Any, capture: str = "require", **settings: Any) -> Any:
        """Two trainings, the eager one first."""
        return self.train(model, data, "off", **settings), self.train(model, data, capture, **settings)

    @staticmethod
    def mlp(*middle: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), *middle, nn.Linear(64, 1))

    @staticmethod
    def rows(samples: int = 640) -> tuple[Tensor, Tensor]:
        x = torch.randn(samples, 16, generator=torch.Generator().manual_seed(0))
        return x, x.sin().sum(1, keepdim=True)

    def train(
        self, model: Callable[..., nn.Module], data: Any, capture: str, *, batch_size: int = 32, shuffle: bool = True,
        callbacks: Callable[[], list[brim.Callback]] = list, resume: Path | None = None, **settings: Any,
    ) -> Trained:  # fmt: skip
        """A trainer's run over columns, or over what the function ``data`` makes; 3 epochs unless said otherwise."""
        self.runs += 1
        torch.manual_seed(1)
        net, kept = model(), KeepLosses()
        folder = resume or self.folder / f"run-{self.runs}"
        trainer: Any = brim.Trainer(
            net, data() if callable(data) else brim.Loader(data, batch_size, shuffle=shuffle), capture=capture,
            callbacks=[kept, *callbacks()], run_dir=folder,
            **{
                "loss_fn": nn.MSELoss(), "optimizer": "Adam", "lr": self.LR, "epochs": 3,
                "checkpoint_every": 1_000_000, **settings,
            },
        )  # fmt: skip
        result = trainer.fit(resume=resume)
        losses = torch.stack(kept.losses).tolist()
        optimizer, random = trainer.optimizer, kept.random
        return Trained(net, optimizer, losses, trainer.captured, random, trainer, folder, result.metrics)

    def step_through(
        self, model: Callable[[], nn.Module], batches: Iterable[Any], capture: str,
        optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
        after: Callable[[int, nn.Module, torch.optim.Optimizer], None] = lambda number, model, optimizer: None,
        loss_fn: Any = None, **settings: Any,
    ) -> Trained:  # fmt: skip
        """A loop of one's own with brim.Step; ``after`` is called after each step."""
        torch.manual_seed(1)
        net = model().to("cuda")
        made = torch.optim.Adam(net.parameters(), lr=self.LR, fused=True) if optimizer is None else optimizer(net)
        step: Any = brim.Step(net, made, loss_fn or nn.MSELoss(), capture=capture, tell=str, **settings)
        torch.manual_seed(2)
        losses = []
        for number, batch in enumerate(batches):
            losses.append(step(batch))
            after(number, net, made)
        return Trained(net, made, torch.stack(losses).tolist(), step.captured, torch.cuda.get_rng_state())


@pytest.fixture
def captured_whatever_it_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``capture="auto"`` what can be captured is: how much faster it is depends on how busy the machine is."""
    monkeypatch.setattr(trial, "LEAST_GAIN", 0.0)
    monkeypatch.setattr(trial, "HOST_SHARE", 0.0)


@pytest.fixture(scope="module")
def gpu_to_itself(request: pytest.FixtureRequest) -> None:
    """For what a GPU that others use would make untrue: shares of time that were planted."""
    if getattr(request.config, "workerinput", {}).get("workercount", 1) > 1:
        pytest.skip("needs a GPU that nothing else uses, and other tests run beside it: run it without -n")
    torch.cuda.synchronize()
    time.sleep(1.5)  # longer than the driver's period
    sensor = DutyCycleSensor(0)
    duty = sensor.read()
    sensor.close()
    if duty is not None and duty > 2:
        pytest.skip(f"needs a GPU that nothing else uses, and this one is busy for {duty} % of the time")


@pytest.fixture
def twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, captured_whatever_it_gains: None) -> Twins:
    # Forecasts have tests of their own, and take longer than these trainings.
    monkeypatch.setattr(PlannedStep, "decide", lambda self, window: self.told(None, "not forecast"))
    return Twins(tmp_path)


@contextmanager
def _meanwhile(work: Callable[[], Any]) -> Iterator[list[int]]:
    """Do ``work`` again and again in another thread; what is handed over grows by an entry each time."""
    done: list[int] = []
    errors: list[BaseException] = []
    over = threading.Event()

    def run() -> None:
        try:
            while not over.is_set():
                work()
                done.append(1)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()
    assert not errors, errors


@pytest.fixture
def meanwhile() -> Callable[[Callable[[], Any]], AbstractContextManager[list[int]]]:
    return _meanwhile


@pytest.fixture
def sample_nvml() -> Callable[[], None]:
    """What monitors of GPUs ask the driver, without a package for it."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        pytest.skip("there is no NVML on this machine")
    if nvml.nvmlInit_v2():
        pytest.skip("NVML does not start here")
    card = ctypes.c_void_p()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card))

    def sample() -> None:
        nvml.nvmlDeviceGetUtilizationRates(card, (ctypes.c_uint * 2)())
        nvml.nvmlDeviceGetMemoryInfo(card, (ctypes.c_ulonglong * 3)())

    return sample
