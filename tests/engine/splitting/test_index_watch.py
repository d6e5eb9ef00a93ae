"""Integers of a batch that something is indexed with: found through views and copies, and told from mere labels."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from brim.engine.splitting.index_watch import IndexWatch

TABLE = torch.randn(10, 4)


class Watching(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.watch = IndexWatch()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.watch.note(func, args, kwargs, result)
        return result


def watched(use, ids):
    with Watching() as mode:
        use(ids)
    return mode.watch.is_index(ids), mode.watch.is_never_negative(ids)


def shifted(ids):
    made = ids.new_zeros(ids.shape)
    made[:, 1:] = ids[:, :-1]
    return made


USES = {
    "embedding": (lambda ids: F.embedding(ids, TABLE), (True, True)),
    "a view of it": (lambda ids: F.embedding(ids[:, :-1], TABLE), (True, True)),
    "gathered": (lambda ids: TABLE.gather(0, ids), (True, True)),
    "brackets, which take negative ones": (lambda ids: TABLE[ids], (True, False)),
    "a copy": (lambda ids: F.embedding(ids.clone(), TABLE), (True, False)),
    "written into something else": (lambda ids: F.embedding(shifted(ids), TABLE), (True, False)),
    "clamped": (lambda ids: F.embedding(ids.clamp(min=0), TABLE), (True, False)),
    "one-hot": (lambda ids: F.one_hot(ids, 10), (True, False)),
    "labels": (lambda ids: F.cross_entropy(torch.randn(12, 10), ids.flatten()), (False, False)),
    "a mask": (lambda ids: TABLE[:3][(ids != -100)[:, 0]], (False, False)),
    "itself indexed": (lambda ids: ids[torch.tensor([0, 1])].float(), (False, False)),
    "a number": (lambda ids: ids.float() * 2, (False, False)),
}  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_what_is_an_index_and_where_a_negative_one_fails(name):
    use, expected = USES[name]
    assert watched(use, torch.randint(4, (3, 4))) == expected


def test_labels_of_ctc_are_unchecked_and_others_are_not():
    scores, lengths = torch.randn(9, 3, 5).log_softmax(-1), [torch.tensor([n] * 3) for n in (9, 4)]
    for use, expected in [
        (lambda ids: F.ctc_loss(scores, ids.int(), *lengths), True),
        (lambda ids: F.embedding(ids, TABLE), False),
    ]:
        ids = torch.randint(1, 5, (3, 4))
        with Watching() as mode:
            use(ids)
        assert mode.watch.is_unchecked(ids) is expected
