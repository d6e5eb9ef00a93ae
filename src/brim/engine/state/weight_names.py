"""Names of weights, without what wrappers put into them."""

# torch.compile and checkpoint wrappers: nobody calls a module of his own like these.
OF_TORCH = frozenset({"_orig_mod", "_checkpoint_wrapped_module"})
# What DataParallel and DDP, and FSDP, put into the names as well, in any nesting.
WRAPPERS = OF_TORCH | {"module", "_fsdp_wrapped_module"}


def bare(name: str) -> str:
    """A weight's name without what any wrapper puts into it; to compare names by, since a module may be called so.

    >>> bare("module._orig_mod.a.weight")
    'a.weight'
    """
    return _without(name, WRAPPERS)


def plain_name(name: str) -> str:
    """As the user knows it, where the model is his own: a submodule called ``module`` stays.

    >>> plain_name("module._orig_mod.a.weight")
    'module.a.weight'
    """
    return _without(name, OF_TORCH)


def _without(name: str, parts: frozenset[str]) -> str:
    return ".".join(part for part in name.split(".") if part not in parts)
