"""The copy of a model that is trained in shards, and how it is built again from what every rank holds."""

import copy
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.optim import Optimizer

from brim.data import Batch, batch_length, move_data_to_device, slice_batch
from brim.engine.components.loss import Loss, LossFunction, loss_of
from brim.engine.components.precision import Precision
from brim.engine.distributed.ranks import Ranks
from brim.engine.fsdp.through_host import exchange_through_host
from brim.engine.numbers.pass_notes import PassNotes
from brim.engine.oom.memory_watch import usable_memory
from brim.engine.oom.out_of_memory import release_memory
from brim.engine.splitting.few_samples import HEAD
from brim.engine.splitting.loss_check import judge_loss
from brim.engine.splitting.loss_verdict import UNKNOWN, LossVerdict
from brim.engine.state.extra_state import is_extra, take_extra
from brim.engine.state.sharded_tensors import copy_part, is_sharded, local_part, spread, whole
from brim.errors import ConfigError
from brim.model_blocks import sharded_blocks

ROOM = 4  # times the weights that must be free on the device for a copy to be tried there
MOST_ON_HOST = 64 << 20  # bytes of weights that the host computes with in a short time
METHODS = ("calculate_loss", "predict")  # what brim calls beside ``forward``: FSDP gathers weights before these too
REFUSED = (nn.modules.batchnorm._BatchNorm,)


class ShardedModel:
    """``module`` is trained; ``bare`` is the user's own model, which gets the weights back when training is over."""

    def __init__(
        self, bare: nn.Module, loss_fn: LossFunction | None, ranks: Ranks, notes: PassNotes | None = None
    ) -> None:
        check_model(bare)
        self.bare = bare
        self.notes = notes  # of passes of the module
        self.loss_fn = loss_fn
        self.ranks = ranks
        self.listeners: list[Callable[[nn.Module], None]] = []  # who else holds the module
        self.verdict: LossVerdict | None = None
        self.module = self.shard_copy()

    def compute(self, batch: Batch) -> Tensor | Loss:
        """The loss of a batch, with the module of now."""
        return self._compute(batch)

    def shard_copy(self) -> nn.Module:
        """A copy whose weights are sharded, block after block: never is all of it on the device at once.

        Nor twice on the host, once for each rank: until they are sharded the copy has the user's own weights.
        """
        own = {id(p): p for p in self.bare.parameters() if p.is_contiguous()}  # FSDP takes no others; copies are so
        module = copy.deepcopy(self.bare, own)
        assert dist.group.WORLD is not None
        # init_device_mesh would form a group of its own here where gloo serves a GPU, whose connections nobody can cut
        mesh = DeviceMesh.from_group(dist.group.WORLD, self.ranks.device.type)
        is_short = any(parameter.element_size() < 4 for parameter in module.parameters())
        policy = MixedPrecisionPolicy(reduce_dtype=torch.float32) if is_short else MixedPrecisionPolicy()
        for block in [*sharded_blocks(module), module]:
            with _left_in_place(block):
                fully_shard(block, mesh=mesh, mp_policy=policy)  # gradients of ranks are added up in 32 bits
        if self.ranks.device.type == "cuda" and dist.get_backend() == "gloo":
            exchange_through_host(module)
        for name in METHODS:
            if hasattr(module, name):
                register_fsdp_forward_method(module, name)
        self.parameters = dict(module.named_parameters())  # while none of them is gathered
        self._compute = loss_of(module, self.loss_fn, self.notes)
        self._count()
        return module

    def judge(self, batch: Batch) -> LossVerdict:
        """What the loss is a mean over, found out by the first rank on the user's own model; all ranks take part."""
        verdict = LossVerdict(UNKNOWN, reason="the first rank has no sample of the first batch")
        if self.ranks.is_first and batch is not None:
            verdict = self._judged(slice_batch(batch, 0, min(HEAD, batch_length(batch))))
        told: LossVerdict = self.ranks.broadcast_object(verdict)
        self.verdict = told
        self._count()
        return told

    def _judged(self, few: Batch) -> LossVerdict:
        """On a copy on the device while there is room for it, else where the user's model is, if that is not slow."""
        device, size = self.ranks.device, sum(p.numel() * p.element_size() for p in self.bare.parameters())
        if device.type == "cuda" and ROOM * size < usable_memory(device) - torch.cuda.memory_allocated(device):
            model = copy.deepcopy(self.bare).to(device)
        elif size <= MOST_ON_HOST or device.type == "cpu":
            model, device = self.bare, next((p.device for p in self.bare.parameters()), torch.device("cpu"))
        else:
            return LossVerdict(UNKNOWN, reason="the model is too large to be tried on the host")
        return judge_loss(loss_of(model, self.loss_fn), move_data_to_device(few, device), Precision("32", device))

    def _count(self) -> None:
        """Weigh by what the loss counts, once that is known, in training and in evaluation."""
        if self.verdict is None or not self.verdict.gives_count:
            return
        modes = [(module, module.training) for module in self._compute.model.modules()] if self._compute.model else []
        for mode in (True, False):
            if self._compute.model is not None:
                self._compute.model.training = mode
                self._compute.count_by(self.verdict.rule)
        for module, mode in modes:
            module.training = mode

    def rebuild(self, optimizer: Optimizer, form_group: Callable[[], None]) -> None:
        """After a step was cut short: FSDP's own state cannot be trusted, but every rank still has its shards.

        They are put aside on the host, the broken copy is given up, the group formed again, and a new copy gets them.
        """
        names = {id(parameter): name for name, parameter in self.parameters.items()}
        parts = {name: _on_host(parameter) for name, parameter in self.parameters.items()}
        places = {name: id(buffer) for name, buffer in self.module.named_buffers(remove_duplicate=False)}
        buffers = {id(buffer): _on_host(buffer) for buffer in self.module.buffers()}
        modes = {name: module.training for name, module in self.module.named_modules()}
        trains = {name: parameter.requires_grad for name, parameter in self.parameters.items()}
        held = [[names[id(parameter)] for parameter in group["params"]] for group in optimizer.param_groups]
        states = {names[id(p)]: {k: _on_host(v) for k, v in state.items()} for p, state in optimizer.state.items()}
        for group in optimizer.param_groups:
            group["params"] = []
        optimizer.state.clear()
        del self.module, self.parameters, self._compute
        for listener in self.listeners:
            listener(self.bare)
        gc.collect()  # modules and their hooks are circles
        release_memory(self.ranks.device)
        form_group()
        self.module = self.shard_copy()
        for name, parameter in self.parameters.items():
            copy_part(parameter, parts[name])
            parameter.requires_grad_(trains[name])
        placed = {place: buffer.to(self.ranks.device) for place, buffer in buffers.items()}
        for name, place in places.items():  # modules that share a buffer go on sharing it
            _set_buffer(self.module, name, placed[place])
        for name, module in self.module.named_modules():
            module.training = modes[name]
        for group, own in zip(optimizer.param_groups, held, strict=True):
            group["params"] = [self.parameters[name] for name in own]
        for name, state in states.items():
            parameter = self.parameters[name]
            optimizer.state[parameter] = {key: _placed(value, parameter) for key, value in state.items()}
        for listener in self.listeners:
            listener(self.module)

    @property
    def is_built(self) -> bool:
        """Not while it is being built again."""
        return "module" in vars(self) and "parameters" in vars(self)

    def reshard(self) -> None:
        """After a forward pass without a backward one, which would have done it."""
        for module in self.module.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def let_go(self) -> None:
        """The run is over: nothing of the sharded copy is needed any more."""
        for listener in self.listeners:
            listener(self.bare)
        self.listeners.clear()
        self.module, self.parameters = self.bare, {}
        self._compute = loss_of(self.bare, self.loss_fn, self.notes)
        gc.collect()
        release_memory(self.ranks.device)

    def give_back(self) -> None:
        """Let the user's model have the weights; all ranks take part."""
        own = self.bare.state_dict()
        with torch.no_grad():
            trained = self.module.state_dict()
            for name, value in trained.items():
                if name in own and not is_extra(name) and own[name].shape == value.shape:
                    own[name].copy_(whole(value))
                elif not is_extra(name):  # a forward pass has filled, registered or enlarged it
                    _set_buffer(self.bare, name, value.to(next(self.bare.parameters()).device, copy=True))
        take_extra(self.bare, {name: value for name, value in trained.items() if is_extra(name)})


def _set_buffer(model: nn.Module, name: str, buffer: Tensor) -> None:
    """Put a buffer in its place: forward passes fill, register and enlarge them, and a fresh copy has other ones."""
    path, _, key = name.rpartition(".")
    model.get_submodule(path)._buffers[key] = buffer


@contextmanager
def _left_in_place(module: nn.Module) -> Iterator[None]:
    """Sharding moves weights to the device first; those of the user's own model are where they were, afterwards."""
    places = [(parameter, parameter.data) for parameter in module.parameters() if not is_sharded(parameter)]
    try:
        yield
    finally:
        for parameter, data in places:
            parameter.data = data


def check_model(model: nn.Module) -> None:
    """Refuse what sharding cannot do."""
    if any(isinstance(module, REFUSED) for module in model.modules()):
        raise ConfigError(
            "strategy='fsdp' and BatchNorm do not go together: statistics would differ between ranks; use GroupNorm or "
            "LayerNorm, or strategy='ddp'"
        )
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ConfigError("strategy='fsdp' cannot shard a ScriptModule; hand over the Python module, or use 'ddp'")
    parameters = list(model.parameters())
    if any(parameter.dim() == 0 for parameter in parameters):
        raise ConfigError("strategy='fsdp' cannot shard a parameter without a dimension; make its shape (1,)")
    if len({parameter.dtype for parameter in parameters}) > 1:
        raise ConfigError("strategy='fsdp' needs parameters of one type; convert the model with .float()")


def _on_host(value: Any) -> Any:
    return local_part(value).detach().to("cpu", copy=True) if isinstance(value, Tensor) else value


def _placed(value: Any, parameter: Tensor) -> Any:
    """A part of the optimizer's state where it was: beside the shard it belongs to."""
    if not isinstance(value, Tensor) or not is_sharded(parameter):
        return value
    if value.shape != local_part(parameter).shape:  # counts of steps
        return value.to(parameter.device)
    return spread(value.to(parameter.device), parameter)
