"""Whether tensors are as they were, told from a few bytes of each.

Torch's version counters do not count what is written through ``.data``, and a sample of the numbers misses the others:
every byte is read. On the host that is SHA-256, 500 MB in 0.28 s on one core with instructions for it and 0.14 s on two
(a copy takes as long). Operations of torch would be no faster there, and forty times slower where other processes
compute as well: their threads wait for each other at each of many short operations.

A GPU's tensors would have to be copied to the host for that. They are read where they lie: each 8 bytes, with their
position added, go through a bijection that spreads every bit over all (the steps of MurmurHash3's finalizer), and two
sums of the results modulo 2^64 are kept. A sum of the plain words, weighted by position, would take fewer steps, but
is blind to what happens: signs flipped in an even number of float64 weights cancel. Here tensors that differ in one
word differ for certain, and others but for a chance of 2^-128. It is no defence against somebody who searches for two
such tensors; what is on disk is named by its SHA-256.
"""

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

# As signed 64-bit integers: the two factors of MurmurHash3's finalizer, and the golden ratio for positions.
FIRST, SECOND, STRIDE = -49064778989728563, -4265267296055464877, -7046029254386353131
WORDS = 1 << 20  # at a time, 8 MiB: few launches, and little memory beside what is trained
MOST_THREADS = 4
HASHED_ALONE = 1 << 20  # bytes: below that a thread would take longer to begin


def fingerprints(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Those of all these tensors, which say where each was computed; the host waits for a GPU once.

    >>> weight = torch.arange(3.0)
    >>> before = fingerprints({"weight": weight})
    >>> weight.data[1] = 5.0
    >>> fingerprints({"weight": weight}) == before
    False
    """
    places: dict[tuple[object, ...], str] = {}
    first_names = {name: places.setdefault(_place(tensor), name) for name, tensor in tensors.items()}
    once = {name: tensors[name] for name in dict.fromkeys(first_names.values())}  # tied ones are read once
    found = _on_devices({name: tensor for name, tensor in once.items() if tensor.is_cuda})
    found |= sha256_of({name: tensor for name, tensor in once.items() if not tensor.is_cuda})
    return {name: _described(tensor, found[first_names[name]]) for name, tensor in tensors.items()}


def contents(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The fingerprints that these tensors have on the host, wherever they are: what they are known by on disk."""
    return {name: _described(tensors[name], found) for name, found in sha256_of(tensors).items()}


def _described(tensor: Tensor, found: str) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)} {found}"


def has_fingerprint(tensor: Tensor) -> bool:
    """Whether a tensor is plain numbers in memory: sharded, sparse, quantized ones and such have none."""
    plain = tensor.detach()
    if type(plain) is not Tensor or plain.layout is not torch.strided:
        return False
    return not (plain.is_meta or plain.is_quantized or plain.is_conj() or plain.is_neg())


def sha256_of(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The SHA-256 sums of the bytes of these tensors."""
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) < HASHED_ALONE:
        return {name: _sha256(tensor) for name, tensor in tensors.items()}
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as threads:  # hashlib lets others compute
        return dict(zip(tensors, threads.map(_sha256, tensors.values()), strict=True))


def _sha256(tensor: Tensor) -> str:
    return hashlib.sha256(as_bytes(tensor.detach().cpu()).numpy().data).hexdigest()


def _place(tensor: Tensor) -> tuple[object, ...]:
    known = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
    return known if tensor.numel() else (*known, id(tensor))


def as_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, to be compared: NaN is not equal to itself, and 0.0 is to -0.0."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _on_devices(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    sums = {name: _sums(tensor) for name, tensor in tensors.items()}
    read: dict[str, str] = {}
    for device in {found.device for found in sums.values()}:
        names = [name for name, found in sums.items() if found.device == device]
        for name, (first, second) in zip(names, torch.stack([sums[name] for name in names]).tolist(), strict=True):
            read[name] = f"mixed {first:x} {second:x}"
    return read


@torch.no_grad()
def _sums(tensor: Tensor) -> Tensor:
    try:
        return mixed_sums(tensor.detach())
    except torch.OutOfMemoryError:  # training fills the GPU: integers are the same on the host
        return mixed_sums(tensor.detach().cpu())


def mixed_sums(tensor: Tensor) -> Tensor:
    """The two sums of a tensor, where it lies."""
    words = _words(tensor)
    positions = torch.arange(min(words.numel(), WORDS), dtype=torch.int64, device=words.device) * STRIDE
    mixed, shifted = torch.empty_like(positions), torch.empty_like(positions)
    first, second = positions.new_zeros(()), positions.new_zeros(())
    for begin in range(0, words.numel(), WORDS):
        part = words[begin : begin + WORDS]
        value, aside = mixed[: len(part)], shifted[: len(part)]
        torch.add(part, positions[: len(part)], out=value)
        value += wrapped(begin * STRIDE)
        _xor_shift(value, aside, 33)
        value *= FIRST
        _xor_shift(value, aside, 33)
        value *= SECOND
        _xor_shift(value, aside, 33)
        first += value.sum()
        value *= FIRST
        _xor_shift(value, aside, 29)
        second += value.sum()
    return torch.stack([first, second])


def _words(tensor: Tensor) -> Tensor:
    """The bytes as 64-bit integers, the last one filled up with zeros."""
    flat = as_bytes(tensor)
    rest = flat.numel() % 8
    if rest:
        flat = torch.cat([flat, flat.new_zeros(8 - rest)])
    elif flat.storage_offset() % 8:
        flat = flat.clone()
    return flat.view(torch.int64)


def _xor_shift(value: Tensor, aside: Tensor, bits: int) -> None:
    """Torch's shift keeps the sign: without the mask two words would become one."""
    torch.bitwise_right_shift(value, bits, out=aside)
    aside &= (1 << (64 - bits)) - 1
    value ^= aside


def wrapped(number: int) -> int:
    """As a signed 64-bit integer.

    >>> wrapped(1 << 63) == -(1 << 63)
    True
    """
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
