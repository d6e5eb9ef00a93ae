from collections import namedtuple
from dataclasses import dataclass

import torch

from brim.doctor.batch_contents import samples_in, tensors_of, with_own_containers

Pair = namedtuple("Pair", "x y")


@dataclass
class Graph:
    x: torch.Tensor
    edges: torch.Tensor


def test_tensors_are_found_in_any_nesting():
    x = torch.ones(4, 2)
    for batch in (x, (x, "name"), {"a": [x]}, Pair(x, 3), Graph(x, x)):
        assert next(tensors_of(batch)) is x and samples_in(batch) == 4
    assert samples_in("text") == 0 and samples_in((torch.tensor(3.0), x)) == 4


def test_what_a_script_takes_out_of_a_batch_is_there_the_next_time():
    x = torch.ones(4)
    batch = {"x": x, "more": [x]}
    handed = with_own_containers(batch)
    handed.pop("x")
    handed["more"].clear()
    assert batch["x"] is x and batch["more"] == [x]
    assert with_own_containers((x, [x]))[0] is x
