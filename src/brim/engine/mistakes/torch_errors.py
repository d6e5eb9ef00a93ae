"""What torch says when data and model do not fit together, as one sentence with what to write."""

import functools
import re
from collections.abc import Callable
from traceback import walk_tb
from typing import ParamSpec, TypeVar

from brim.engine.sandbox.error_origin import is_raised_in_python
from brim.errors import BrimError, ModelError
from brim.user_line import is_users_own

P = ParamSpec("P")
R = TypeVar("R")
DTYPES = {
    "double": "float64", "float": "float32", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32",
    "byte": "uint8", "char": "int8", "short": "int16", "bool": "bool",
}  # fmt: skip
_INPUTS = "the inputs are {0} and the weights {1}: hand over x.{2} (a DataFrame or array: x.astype('{1}'))"
_TARGET = "the targets are {0}, and this loss takes {1}: hand over y.{2}"
_LABELS = (
    "the targets are {0}, and cross entropy takes class numbers in int64 of shape (N,), or probabilities in the shape "
    "of the output: hand over y.long()"
)

_BF16 = (
    "a layer with weights in bfloat16 gets float32: pass precision='bf16-true', which casts the data as well, and let "
    "the model make tensors of its own with dtype=x.dtype"
)

# What torch says, and the sentence; groups that are names of dtypes become those that Python writes.
SENTENCES: tuple[tuple[str, str], ...] = (
    (r"mat1 and mat2 must have the same dtype, but got Float and BFloat16", _BF16),
    (r"expected m1 and m2 to have the same dtype, but got: float != c10::BFloat16", _BF16),
    (r"[Ii]nput type \((?:float|torch\.(?:cuda\.)?FloatTensor)\) and (?:bias|weight) type "
     r"\((?:c10::BFloat16|torch\.(?:cuda\.)?BFloat16Tensor)\) should be the same", _BF16),
    (r"mat1 and mat2 must have the same dtype, but got (\w+) and (\w+)", _INPUTS),
    (r"expected m1 and m2 to have the same dtype, but got: (\w+) != (\w+)", _INPUTS),
    (r"[Ii]nput type \(?(?:torch\.)?(?:cuda\.)?(\w+?)(?:Tensor)?\)? and (?:bias|weight) type "
     r"\(?(?:torch\.)?(?:cuda\.)?(\w+?)(?:Tensor)?\)? should be the same", _INPUTS),
    (r"Found dtype (\w+) but expected (\w+)", _TARGET),
    (r"result type (\w+) can't be cast to the desired output type (?:Long|Int|Byte|Bool)",
     "the targets are whole numbers, and this loss takes {0}: hand over y.{1}"),
    (r"expected target dtype to be Long or Byte, but got (\w+)", _LABELS),
    (r"expected scalar type Long but found (\w+)", _LABELS),
    (r"[Ee]xpected floating point type for target with class probabilities, got (\w+)",
     "the targets are {0} in the shape of the output, where cross entropy takes probabilities: hand over y.float(), or "
     "class numbers of shape (N,)"),
    (r"0D or 1D target tensor expected, multi-target not supported",
     "the targets have two dimensions, and cross entropy takes class numbers of shape (N,): hand over y.squeeze(1)"),
    (r"Target (-?\d+) is out of bounds",
     "a target is {0}, and the model has no such class: its outputs must be more than the largest target, and targets "
     "count from 0 (ignore_index= leaves some out)"),
    (r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)",
     "a layer takes {1} features and gets {0}: give the data {1}, or the layer in_features={0}"),
    (r"argument 'input' \(position 1\) must be Tensor, not (\w+)",
     "a layer gets a {0} where it takes a tensor: let batches hold tensors (an HF data set: ds.with_format('torch')), "
     "and unpack what holds several in forward, or with loss_fn=lambda model, batch: ..."),
    (r"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
     r"(?:torch\.)?(?:cuda\.)?(\w+?)Tensor", "an embedding gets {0} and takes whole numbers: hand over x.long()"),
    (r"(\w+)\.forward\(\) missing \d+ required positional arguments?: (.+)",
     "{0}.forward needs {1} as well: let batches be ((a, b), target), or pass loss_fn=lambda model, batch: ..."),
    (r"(\w+)\.forward\(\) got an unexpected keyword argument '(\w+)'",
     "{0}.forward takes no {1}: take it out of the batches, or pass loss_fn=lambda model, batch: ..."),
    (r"element 0 of tensors does not require grad",
     "the loss does not depend on the weights: it was detached, made by .item(), or computed under no_grad"),
    (r"Expected all tensors to be on the same device",
     "a tensor is on another device than the model: make what the loss or the model uses a buffer of the model "
     "(register_buffer), or move it with .to(x.device)"),
)  # fmt: skip


def explained_errors(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, with torch's words for data and model that do not fit together as a :class:`ModelError`."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (RuntimeError, TypeError, IndexError) as error:
            sentence = None if isinstance(error, BrimError) or is_raised_in_python(error) else explanation(str(error))
            if sentence is None:
                raise
            said = f"torch says{_place(error)}: {str(error).splitlines()[0][:200]}"
            raise ModelError(f"{sentence} ({said})") from error

    return call


def _place(error: BaseException) -> str:
    """The innermost line of the user's own that an error passed through, if there is one."""
    lines = [(frame.f_code.co_filename, number) for frame, number in walk_tb(error.__traceback__)]
    return next((f" at {file}:{number}" for file, number in reversed(lines) if is_users_own(file)), "")


def explanation(said: str) -> str | None:
    """The sentence for what torch says, if there is one.

    >>> explanation("Found dtype Long but expected Float")
    'the targets are int64, and this loss takes float32: hand over y.float()'
    """
    for pattern, sentence in SENTENCES:
        if (found := re.search(pattern, said)) is not None:
            names = [DTYPES.get(group.lower(), group) for group in found.groups()]
            casts = [f"{_cast(name)}" for name in reversed(names)]
            return sentence.format(*names, *casts)
    return None


def _cast(dtype: str) -> str:
    """The method that makes a tensor of it."""
    short = {name: key for key, name in DTYPES.items()}
    return f"{short[dtype]}()" if dtype in short else dtype
