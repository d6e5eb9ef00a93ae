"""A loss over a whole batch whose samples are encoded one by one, so that micro-batches of it can be exact."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from brim.arguments.known import explained_call
from brim.data import Batch, batch_length
from brim.data.batches.batch import leaves_of, map_leaves
from brim.engine.numbers.summed_loss import Loss
from brim.errors import ConfigError

Outputs = Any  # what encode returns: tensors with a row for each sample, in any nesting
MODEL = "model"  # the argument in which a loss gets the model, if it has one of this name


class TwoPass(functools.partial[Any]):
    """A loss that compares the samples of a batch, for a model that encodes each of them by itself.

    In micro-batches it stays exact: all samples are encoded without gradients, the loss is computed once over the whole
    batch, and each micro-batch is encoded again with its part of the loss's gradient (gradient caching). Where the
    batch goes through whole it is ``loss(*encode(model, batch))``. :func:`brim.gather` within ``loss`` makes it
    exact over ranks.

    Args:
        encode: ``function(model, batch)`` that returns tensors with one row for each sample, as a tensor, tuple or
            dict; what else the loss needs of a sample (labels) among them. A tensor without dimensions, such as a
            temperature, is the same for all samples.
        loss: a function, or module, of what ``encode`` returns: ``loss(one)``, ``loss(first, second)`` of a tuple,
            ``loss(**outputs)`` of a dict. It returns the mean over the batch, or ``brim.Loss(total, count)``. With an
            argument named ``model`` it is handed the model too.

    >>> from torch.nn import functional as F
    >>> def encode(model, batch):
    ...     return model(batch[0]), model(batch[1])
    >>> def contrast(left, right):
    ...     return F.cross_entropy(left @ right.T, torch.arange(len(left), device=left.device))
    >>> loss_fn = TwoPass(encode, contrast)
    >>> loss_fn(nn.Linear(3, 2), (torch.ones(4, 3), torch.ones(4, 3))).shape
    torch.Size([])
    """

    # A partial, so that whoever looks for what a loss holds looks into it.

    @explained_call
    def __new__(cls, encode: Callable[..., Outputs], loss: Callable[..., Any]) -> "TwoPass":
        """Check that both can be called."""
        for name, given in (("encode", encode), ("loss", loss)):
            if not callable(given) or isinstance(given, type):
                shown = f"the class {given.__name__}" if isinstance(given, type) else repr(given)[:60]
                raise ConfigError(
                    f"brim.TwoPass(encode, loss) takes two functions, encode(model, batch) and loss of what that "
                    f"returns, and {name} is {shown}"
                )
        _check_encode(encode)
        return super().__new__(cls, _computed, encode, loss)

    @property
    def encode(self) -> Callable[..., Outputs]:
        """The function of (model, batch)."""
        return self.args[0]  # type: ignore[no-any-return]

    @property
    def loss(self) -> Callable[..., Any]:
        """The function, or module, of what ``encode`` returns."""
        return self.args[1]  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        return TwoPass, (self.encode, self.loss)

    def __deepcopy__(self, memo: Any) -> "TwoPass":
        return self  # as functions are: what it holds is the user's


def _check_encode(encode: Callable[..., Outputs]) -> None:
    try:
        inspect.signature(encode).bind(None, None)
    except TypeError:
        raise ConfigError(
            "encode of brim.TwoPass is called as encode(model, batch), and takes other arguments"
        ) from None
    except ValueError:  # native code has no signature
        return


def _computed(encode: Callable[..., Outputs], loss: Callable[..., Any], model: nn.Module, batch: Batch) -> Any:
    """The loss of a batch that goes through whole: what a loop by hand would compute."""
    return loss_of_outputs(loss, model, encode(model, batch))


def loss_of_outputs(loss: Callable[..., Any], model: nn.Module | None, outputs: Outputs) -> Any:
    """Call ``loss`` with what ``encode`` returned, and with the model where it asks for that."""
    named = {MODEL: model} if _takes_model(loss) else {}
    if isinstance(outputs, Mapping):
        return loss(**outputs, **named)
    if isinstance(outputs, tuple | list):
        return loss(*outputs, **named)
    return loss(outputs, **named)


def _takes_model(loss: Callable[..., Any]) -> bool:
    called = loss.forward if isinstance(loss, nn.Module) else loss
    try:
        return MODEL in inspect.signature(called).parameters
    except (TypeError, ValueError):  # native code has no signature
        return False


def criterion_in(loss_fn: Any) -> nn.Module | None:
    """The module that a loss is, or that a loss in two passes computes its outputs' loss with.

    >>> criterion_in(TwoPass(lambda model, batch: model(batch), nn.Softplus()))
    Softplus(beta=1.0, threshold=20.0)
    """
    found = loss_fn.loss if isinstance(loss_fn, TwoPass) else loss_fn
    return found if isinstance(found, nn.Module) else None


def check_rows(outputs: Outputs, samples: int) -> None:
    """Refuse outputs that are not one row for each sample: nobody could join those of micro-batches."""
    for leaf in leaves_of(outputs):
        if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) != samples:
            raise ConfigError(
                f"encode of brim.TwoPass returns a tensor of shape {tuple(leaf.shape)} for {samples} samples; in "
                "micro-batches and over ranks its tensors need one row for each sample (what belongs to no sample, "
                "loss(..., model) can take from the model)"
            )


def probed(two_pass: TwoPass, model: nn.Module, batch: Batch) -> Loss:
    """A mean over samples if, and only if, ``encode`` computes each sample by itself: to be judged as a loss is.

    Of each row some number with a gradient that neither normalising nor centring the rows makes vanish.
    """
    samples = batch_length(batch)  # before the call, which may take things out of the batch
    outputs = two_pass.encode(model, batch)
    check_rows(outputs, samples)
    rows = [leaf for leaf in leaves_of(outputs) if isinstance(leaf, Tensor) and leaf.dim() and leaf.is_floating_point()]
    if not rows:
        raise ConfigError("encode of brim.TwoPass returns no tensor of real numbers with one row for each sample")
    numbers = torch.stack([_number_of_rows(tensor) for tensor in rows]).sum(0)
    return Loss((numbers + numbers.square()).sum(), samples)


def _number_of_rows(rows: Tensor) -> Tensor:
    flat = rows.flatten(1) if rows.dim() > 1 else rows[:, None]
    flat = flat.float() if flat.element_size() < 4 else flat
    return flat @ torch.arange(1, flat.shape[1] + 1, device=flat.device, dtype=flat.dtype).cos()


def surrogate_loss(two_pass: TwoPass, model: nn.Module, micro_batch: Batch, length: int) -> Tensor:
    """What has the gradients, and takes the memory, of a micro-batch of a batch of ``length`` samples in two passes.

    The loss and its gradient at so many rows come first, and are gone when the micro-batch is propagated.
    """
    with torch.no_grad():
        rows = two_pass.encode(model, micro_batch)
        rows = map_leaves(lambda leaf: _of_length(leaf, length) if isinstance(leaf, Tensor) else leaf, rows)
    leaves = detached(rows)
    trained = [leaf for leaf in leaves_of(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]
    loss = loss_of_outputs(two_pass.loss, model, leaves)
    loss = loss["loss"] if isinstance(loss, Mapping) else loss
    mean = loss.mean if isinstance(loss, Loss) else loss
    gradients = iter(torch.autograd.grad(mean, trained, allow_unused=True))
    total: Tensor = mean.detach() * 0
    outputs = [leaf for leaf in leaves_of(two_pass.encode(model, micro_batch)) if isinstance(leaf, Tensor)]
    for output in outputs:
        if output.is_floating_point() or output.is_complex():
            gradient = next(gradients)
            if gradient is not None and output.requires_grad:
                total = total + (output * (gradient[: len(output)] if output.dim() else gradient)).sum()
    return total


def _of_length(leaf: Tensor, length: int) -> Tensor:
    """As many rows, whatever they are."""
    return leaf.new_zeros((length, *leaf.shape[1:])) if leaf.dim() else leaf


def detached(outputs: Outputs) -> Outputs:
    """The outputs as leaves of a graph of their own: those of real numbers have gradients."""

    def cut(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.detach().requires_grad_(leaf.is_floating_point() or leaf.is_complex())

    return map_leaves(cut, outputs)


def joined(parts: Sequence[Outputs]) -> Outputs:
    """The outputs of all micro-batches, row after row; what has no rows, as the first one has it."""
    columns = iter(list(zip(*map(leaves_of, parts), strict=True)))

    def join(leaf: Any) -> Any:
        column = next(columns)
        if isinstance(leaf, Tensor) and leaf.dim():
            return torch.cat(column)
        if any(not _is_same(leaf, other) for other in column[1:]):
            raise ConfigError(
                f"encode of brim.TwoPass returns {str(leaf)[:60]} for one micro-batch and something else for another, "
                "without a row for each sample; in micro-batches that cannot be joined: return it for each sample"
            )
        return leaf

    return map_leaves(join, parts[0])


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and bool((one == other).item())
    return bool(one == other)
