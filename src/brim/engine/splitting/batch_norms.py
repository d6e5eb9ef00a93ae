"""BatchNorms whose statistics are those of the batch: parts of a batch have others."""

from torch import nn


def batch_norms(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]


def has_batch_norm(model: nn.Module) -> bool:
    return bool(batch_norms(model))


def follows_batch(norm: nn.Module) -> bool:
    """Whether a norm computes with what it sees of a batch now: one in eval mode that has statistics does not.

    >>> follows_batch(nn.BatchNorm1d(2)), follows_batch(nn.BatchNorm1d(2).eval())
    (True, False)
    """
    return norm.training or norm.running_mean is None


class FrozenNorms:
    """The norms of a model that do not follow the batch, watched: a callback may thaw them in the middle of a run."""

    def __init__(self, model: nn.Module | None) -> None:
        self._frozen = [] if model is None else [norm for norm in batch_norms(model) if not follows_batch(norm)]

    def were_thawed(self) -> bool:
        """Whether one of them follows the batch since it was last asked."""
        thawed = [norm for norm in self._frozen if norm.training]
        if thawed:
            self._frozen = [norm for norm in self._frozen if not norm.training]
        return bool(thawed)
