"""What was seen of a script while it trained: plain numbers, as they travel from the child process to the rules."""

from dataclasses import dataclass, field

from pydantic import TypeAdapter


@dataclass(frozen=True)
class LineTime:
    """Where the main thread was when it was sampled: a line of the user's code, what for, and its share of the time."""

    line: str  # "train.py:31"
    text: str  # the source of that line
    # loader, data, forward, backward, optimizer, evaluation, logging, checkpoint, profiler, garbage or python
    kind: str
    share: float


@dataclass(frozen=True)
class TensorCalls:
    """Calls of one method of tensors from one line: copies between devices, and what waits for the device."""

    method: str  # "item", "to", ...
    line: str
    text: str
    direction: str  # "to device", "to host", "pinned" or "none"
    per_step: float
    seconds: float  # of the host, a step
    bytes: float = 0.0  # a step
    pinned: bool = False
    non_blocking: bool = False


@dataclass(frozen=True)
class LoaderSeen:
    """A torch DataLoader: its settings, its batches, and what one of them cost to make."""

    dataset: str
    length: int | None  # samples; None for a stream
    batch_size: int | None
    num_workers: int
    persistent_workers: bool
    prefetch_factor: int | None
    pin_memory: bool
    default_collate: bool
    batched_access: bool  # the data set is asked for whole batches
    line: str  # where it was made
    trains: bool  # False: for evaluation
    start_method: str = ""
    stream: bool = False  # an IterableDataset: each of its workers goes through all of it, unless it splits itself
    columns: bool = False  # a TensorDataset, or a Subset of one: its batches can be indexed at once
    frame: bool = False  # it keeps a DataFrame
    made: int = 1  # how often, in the timed steps: more than once where the script makes it in every epoch
    batches: int = 0
    waited: float = 0.0  # seconds for them, but for the first of new workers
    samples: int = 0
    batch_bytes: int = 0
    batch_tensors: int = 0
    shapes: int = 1  # how many different ones the batches had
    padding: float = 0.0  # share of the positions of sequences
    worker_starts: int = 0  # how often worker processes were started
    # Seconds per batch of whoever makes it, here or in a worker: on the clock, with a core or in line for one, and with
    # a core; None where not seen.
    make_seconds: float | None = None
    make_cpu_seconds: float | None = None
    make_running_seconds: float | None = None
    collate_seconds: float | None = None
    batched_seconds: float | None = None  # by one index, where that gives the same batch
    was_probed: bool = False  # whether that was tried
    files_opened: float = 0.0  # per batch

    @property
    def samples_per_batch(self) -> float:
        return self.samples / self.batches if self.batches else 0.0


@dataclass(frozen=True)
class OptimizerSeen:
    """An optimizer, and what its updates cost."""

    name: str
    tensors: int
    elements: int
    foreach: bool | None
    fused: bool | None
    seconds: float  # a step
    zero_grad_seconds: float = 0.0  # a step
    zeroes_gradients: bool = False  # zero_grad(set_to_none=False)
    in_float64: bool = False  # some of its weights


@dataclass(frozen=True)
class Window:
    """Some steps in a row, and where their time went as far as it can be told without a profiler; seconds of all."""

    steps: int
    seconds: float
    step_seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)  # 5th, 50th and 95th percentile
    samples: int = 0
    batches: int = 0  # of loaders, for training
    data: float = 0.0  # in a DataLoader: its next batch, and starting and ending its workers
    worker_starts: float = 0.0  # the part of that in which workers were started and ended
    epochs: int = 0
    evaluation: float = 0.0
    garbage: float = 0.0
    collections: int = 0
    throttled: float = 0.0
    io_wait: float = 0.0
    in_line: float = 0.0  # ready to run, and another process or thread had the core
    major_faults: int = 0
    cpu: float = 0.0  # CPU seconds of the main process

    @property
    def step(self) -> float:
        """Seconds a step."""
        return self.seconds / self.steps if self.steps else 0.0

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Profile:
    """Steps under torch's profiler. Seconds a step."""

    steps: int
    step: float  # under the profiler, which makes it longer
    operators: float  # how many, a step
    compute: float  # operators on a CPU without what calling them costs; the union of kernels on a GPU
    copy: float = 0.0  # to the device, and not hidden behind kernels
    copy_all: float = 0.0  # hidden or not
    data: float = 0.0  # the device idle while the host was in the loader
    sync: float = 0.0  # idle while, and right after, the host waited for it
    launch: float = 0.0  # idle otherwise
    before_forward: float = 0.0  # operators between the end of a step and the next forward pass
    dispatch: float = 0.0  # what calling the operators cost
    kernels: float = 0.0
    kernel_seconds: float = 0.0  # sum, overlap counted twice
    pageable_copies: float = 0.0
    syncs: float = 0.0  # calls that wait for the device
    matmul_seconds: float = 0.0  # kernels that multiply matrices or convolve
    fp32_matmul_seconds: float = 0.0  # those of them in fp32 without tensor cores
    allocation: float = 0.0  # the host asks the driver for memory, or gives it back
    devices: tuple[float, ...] = ()  # in which each of them computes
    top: tuple[tuple[str, float], ...] = ()  # operators or kernels by seconds a step


@dataclass(frozen=True)
class LiveTrial:
    """A setting that was changed while the script went on, on the same few batches."""

    name: str  # "threads", "fused", "drop-gradients", "no-anomaly-detection"
    value: int
    step: float  # seconds with it
    before: float  # seconds without it, measured around it

    def saved_of(self, window: Window) -> float:
        """The part of a window's time that the setting would save.

        Trials are made on batches that are there: of what a step takes beside its waiting for data they tell the part,
        whatever else the machine did at that time.

        >>> round(LiveTrial("fused", 1, step=1.0, before=4.0).saved_of(Window(10, seconds=10.0, data=2.0)), 6)
        0.6
        """
        if self.before <= 0 or window.seconds <= 0:
            return 0.0
        return max(0.0, 1.0 - self.step / self.before) * max(0.0, 1.0 - window.data / window.seconds)


@dataclass(frozen=True)
class Host:
    """The machine, and what the script set on it."""

    cores: int  # that this process may use
    threads: int  # torch's, within an operator
    torch: str = ""
    device: str = "cpu"
    device_name: str = ""
    load: float = 0.0  # processes that wanted a core before the script began
    compiled: bool = False
    recompiles: int = 0
    compile_gave_up: bool = False  # after so many shapes that torch runs the code uncompiled
    autocast: bool = False
    finds_anomalies: bool = False  # autograd looks for NaN in every backward pass
    tf32: bool = False
    cudnn_benchmark: bool = False
    data_parallel: int = 0  # GPUs under nn.DataParallel
    allocator_retries: int = 0
    memory_reserved: float = 0.0  # by torch, of all that the device has
    memory_split: float = 0.0  # of what is reserved: free, in pieces
    memory_free: int = 0  # bytes of the device that nobody has
    deterministic: bool = False
    processes: int = 0  # that the script started itself
    children: int = 0  # those of them that computed beside the timed steps


@dataclass(frozen=True)
class Observation:
    """What one run of a script showed."""

    ended: str  # "measured": stopped by the doctor; "finished": the script came to its end; "failed"
    steps: int  # optimizer steps in all
    host: Host
    timed: Window | None = None  # nothing but the light hooks
    sampled: Window | None = None
    ceiling: Window | None = None  # on batches that are already there
    profile: Profile | None = None
    loaders: tuple[LoaderSeen, ...] = ()
    optimizers: tuple[OptimizerSeen, ...] = ()
    lines: tuple[LineTime, ...] = ()
    calls: tuple[TensorCalls, ...] = ()
    trials: tuple[LiveTrial, ...] = ()
    training_seconds: float = 0.0  # from the first step on
    losses: tuple[float, ...] = field(default=(), repr=False)
    error: str = ""  # what the script said where it failed
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # the user's, by their paths: the script, and modules that it imported

    @property
    def train_loader(self) -> LoaderSeen | None:
        """The loader that the training waits for the most, where it has several."""
        found = [loader for loader in self.loaders if loader.trains]
        return max(found, key=lambda loader: (loader.waited, loader.batches), default=None)

    @property
    def batches_per_step(self) -> float:
        """How many of that loader's batches a step takes."""
        window, loader = self.timed, self.train_loader
        if window is None or loader is None or not window.steps or not window.batches:
            return 1.0
        all_batches = sum(each.batches for each in self.loaders if each.trains)
        return window.batches / window.steps * loader.batches / max(1, all_batches)

    @property
    def part_of_waiting(self) -> float:
        """The part of the training's waiting for loaders that is for that one."""
        waited = [each.waited for each in self.loaders if each.trains]
        return max(waited) / sum(waited) if any(waited) else 1.0


def read_observation(text: str | bytes) -> Observation:
    """The observation that a child process wrote."""
    return TypeAdapter(Observation).validate_json(text)
