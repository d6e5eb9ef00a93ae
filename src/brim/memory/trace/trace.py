"""A training step, as a sequence of storages that come to life and die."""

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from brim.hardware.cards import Card
from brim.memory.kernels import RULES
from brim.memory.kernels.blas import BlasWorkspaces
from brim.memory.kernels.elementwise import is_in_backward
from brim.memory.kernels.scope import Call, Scope
from brim.memory.trace.data_dependent import ANSWERS, UNBOUNDED, DynamicShapes, KnownValues
from brim.memory.trace.guesses import Guesses
from brim.memory.trace.sparse import SparseParts, parts_of_real
from brim.user_line import line_of_job

EXPLAINED_FROM = 1 << 20  # a line of source is looked up for storages of at least this size
DEATH = -1
TOLD = {int: "a whole number was asked for", bool: "a yes or no was asked for"}
DEVICE = torch.ops.prim.device.default
META = torch.device("meta")


@dataclass(slots=True)
class Storage:
    """One block of memory that the program asked for."""

    size: int
    operator: str
    phase: str
    module: str = ""
    line: str = ""
    kind: str = ""
    optional: bool = False  # a workspace that is left out where there is no room for it


@dataclass
class Trace:
    """Storages, and events in order: (number of the storage, bytes) or (number, -1) when it dies."""

    storages: list[Storage] = field(default_factory=list)
    events: list[tuple[int, int]] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    has_batch_norm: bool = False  # a slice of the batch is then not the same as a part of it

    @property
    def optional(self) -> frozenset[int]:
        """The storages that are left out where there is no room for them."""
        return frozenset(number for number, storage in enumerate(self.storages) if storage.optional)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


class Recorder(TorchDispatchMode):
    """Watches every operator that runs, and writes down its storages in a `Trace`."""

    def __init__(self, card: Card, runtime: tuple[int, int]) -> None:
        super().__init__()
        self.trace = Trace()
        self.card = card
        self.phase = "build"
        self.watching = False
        self.failed_in = ""  # the innermost module that raised
        self._module: list[str] = []
        self._known: dict[int, tuple[Callable[[], Any], int]] = {}
        self._values = KnownValues()
        self._guesses = Guesses()
        self._dynamic_shapes = DynamicShapes(self._values)
        self._made_once: set[str] = set()
        self._blas = BlasWorkspaces(card, runtime)
        self._sparse = SparseParts(self._see_in_sparse, self._followed, self._values.distinct, self._passing, self.note)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Recorder":
        return self  # hooks of a part that a model copies while it runs report to the same one

    # -- what the caller says ------------------------------------------------------------------------------------------

    def enter(self, phase: str) -> None:
        """Begin a phase of the step."""
        self.phase = phase
        self._guesses.begin_pass()
        self.trace.marks.append((len(self.trace.events), phase))

    def record_copy(self, tensor: Tensor, kind: str, module: str = "") -> None:
        """Record that a tensor which was made off the card is copied to it."""
        for dense in self._sparse.of(tensor) or (tensor,):
            number = self._see(dense, f"{kind}")
            self.trace.storages[number].kind = kind
            self.trace.storages[number].module = module

    def record_flattened(self, tensors: list[Tensor], module: str) -> None:
        """Record that tensors on the card move into one storage, as weights do for cuDNN; those they had die."""
        size = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        number = self._born(size, "parameters", "parameters")
        self.trace.storages[number].module = module
        for tensor in tensors:
            key = tensor.untyped_storage()._cdata
            self._died(self._known[key][1])
            storage = weakref.ref(tensor.untyped_storage())
            self._known[key] = (storage, number)

    def know(self, tensor: Tensor, value: Tensor) -> None:
        """What a fake tensor really holds."""
        self._values.know(tensor, value)

    def numbers(self, tensor: Tensor) -> list[int] | None:
        """What a tensor of whole numbers holds, where that is known."""
        return self._values.numbers(tensor)

    def note(self, sentence: str) -> None:
        """Add a sentence to the notes of the forecast."""
        self.trace.note(sentence)

    def label(self, tensor: Tensor, kind: str, parameter: str) -> None:
        """Name the kind of a tensor's storage, and the parameter that it belongs to."""
        for dense in self._sparse.of(tensor) or (tensor,):
            entry = self._known.get(dense.untyped_storage()._cdata)
            if entry is not None:
                storage = self.trace.storages[entry[1]]
                storage.kind, storage.module = kind, parameter

    def sparse_parts(self, tensor: Tensor) -> tuple[Tensor, Tensor] | None:
        """The indices and values of a sparse tensor, if they are there; None of others."""
        is_real = tensor.layout == torch.sparse_coo and not isinstance(tensor, FakeTensor)
        return parts_of_real(tensor) if is_real else self._sparse.of(tensor)

    def storage_of(self, tensor: Tensor) -> Storage | None:
        """The storage that a tensor lies in, where it was seen."""
        entry = self._known.get(tensor.untyped_storage()._cdata)
        return None if entry is None else self.trace.storages[entry[1]]

    def watch_modules(self, model: nn.Module) -> None:
        """Remember which module runs, so that storages can be told by where they come from."""
        for name, module in model.named_modules():
            self.trace.has_batch_norm |= isinstance(module, _BatchNorm) and module.training
            module.register_forward_pre_hook(lambda *_, name=name: self._module.append(name))
            module.register_forward_hook(self._leave_module, always_call=True)

    def _leave_module(self, module: nn.Module, args: Any, output: Any) -> None:
        left = self._module.pop()
        if output is None and not self.failed_in and sys.exc_info()[0] is not None:
            self.failed_in = f"{left} ({type(module).__name__})" if left else type(module).__name__

    def finish(self) -> Trace:
        """The trace; what dies from here on is no longer written down."""
        trace, self.trace = self.trace, Trace()
        return trace

    # -- what torch does -----------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is DEVICE:  # asked all the time: a shortcut past the fake tensors' own answer
            return META if args[0].fake_mode.in_kernel_invocation else args[0].fake_device
        with torch._C.DisableTorchFunction():  # in the backward its modes are on, and they are for the user's calls
            return self._run(function, args, kwargs or {})

    def _run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str(function)
        if name in ANSWERS:
            return self._answer(function, args, kwargs)
        if self._sparse.concern(name, args):
            return self._sparse.run(function, args, kwargs)
        try:
            result = function(*args, **kwargs)
        except DynamicOutputShapeException:
            result, is_exact = self._dynamic_shapes.result(name, args, kwargs)
            if not is_exact:
                more = "as many as it was given were taken, and it may give more"
                taken = more if name.startswith(UNBOUNDED) else "the most it could give was taken"
                self.trace.note(f"{name} gives as many values as its data says: {taken}")
        self._values.follow(function, args, kwargs, result)
        if self.watching:
            self._record(name, args, kwargs, result)
        return result

    def _answer(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = self._values.answer(function, args, kwargs)
        if not self._values.guesses(args, kwargs):
            return answer
        is_of_weights = self.phase == "build" and type(answer) is bool  # as initialisations ask of what they drew
        if type(answer) in TOLD and not is_of_weights:  # a length may follow, or another branch
            at = line_of_job()
            taken = {True: "yes", False: "no"}[answer] if type(answer) is bool else answer
            self.note(f"{TOLD[type(answer)]}{f' at {at}' if at else ''} that only the data knows: {taken} was taken")
        return self._guesses.answer(answer)

    def _record(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        rule = RULES.get(name)
        if rule is not None:
            made = tuple(result) if isinstance(result, tuple | list) else (result,)
            scope = Scope()
            rule(Call(name, args, kwargs, made, self.card), scope)
            scope.close()
            self.record_call(scope, name, made)
        for tensor in outputs:
            self._see(tensor, name)
        for size in self._blas.asked_for(name, args, is_in_backward()):
            self._born(size, name, "workspace")

    def _followed(self, function: Any, *args: Any) -> Tensor:
        result: Tensor = function(*args)
        self._values.follow(function, args, {}, result)
        return result

    def _see_in_sparse(self, tensor: Tensor) -> None:
        if self.watching:
            self._see(tensor, "sparse tensor")

    def _passing(self, name: str, size: int) -> None:
        if self.watching:
            self._died(self._born(size, name, "workspace"))

    def allocate_once(self, name: str, size: int) -> None:
        """Record a workspace that the first call allocates and that is never freed."""
        if name not in self._made_once:
            self._made_once.add(name)
            self._born(size, name, "workspace")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing within: tensors that are made there are handed to `record_call`."""
        was, self.watching = self.watching, False
        try:
            yield
        finally:
            self.watching = was

    def record_call(self, scope: Scope, name: str, made: Sequence[Any]) -> None:
        """Record what a kernel's rule says happens inside a call."""
        mentioned = {step.output for step in scope.steps}
        for index, tensor in enumerate(made):
            if index not in mentioned and isinstance(tensor, Tensor):
                self._see(tensor, name)
        temporaries: dict[int, int] = {}
        for step in scope.steps:
            if step.output is not None:
                if step.output < len(made) and isinstance(made[step.output], Tensor):
                    self._see(made[step.output], name)
            elif step.size >= 0 and step.temporary is not None:
                temporaries[step.temporary] = self._born(step.size, name, "workspace")
                self.trace.storages[-1].optional = step.optional
            elif step.temporary is not None:
                self._died(temporaries[step.temporary])

    def _see(self, tensor: Tensor, operator: str) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        entry = self._known.get(key)
        if entry is not None and entry[0]() is storage:
            return entry[1]
        number = self._born(storage.nbytes(), operator)

        def dead(_: Any, number: int = number, key: int = key) -> None:
            self._died(number)
            if self._known.get(key, (None, -1))[1] == number:
                del self._known[key]

        self._known[key] = (weakref.ref(storage, dead), number)
        return number

    def _born(self, size: int, operator: str, kind: str = "") -> int:
        number = len(self.trace.storages)
        has_line = size >= EXPLAINED_FROM and self.phase == "forward"  # elsewhere torch runs, not the user's code
        self.trace.storages.append(
            Storage(
                size,
                operator,
                self.phase,
                self._module[-1] if self._module else "",
                line_of_job() if has_line else "",
                kind,
            )
        )
        self.trace.events.append((number, size))
        return number

    def _died(self, number: int) -> None:
        if number < len(self.trace.storages):
            self.trace.events.append((number, DEATH))
