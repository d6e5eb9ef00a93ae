from torch import nn

from brim.engine.compiled.block_groups import block_groups, callers_of


def layer(width):
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())


class Stack(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.inner = nn.Module()
        self.inner.layers = nn.ModuleList(layer(width) for width in widths)


def test_blocks_of_other_widths_are_other_groups():
    assert [len(group) for group in block_groups(Stack([2, 2, 2, 3, 3]))] == [3, 2]


def test_nothing_is_gained_where_hardly_any_blocks_are_alike():
    assert block_groups(Stack([2, 3, 4, 5])) == [] == block_groups(nn.Linear(2, 2))


def test_a_block_with_a_forward_of_its_own_keeps_it():
    model = Stack([2, 2])
    model.inner.layers[0].forward = lambda x: x
    assert block_groups(model) == []


def test_lists_are_called_by_what_they_belong_to_and_sequentials_by_themselves():
    model = Stack([2, 2])
    assert callers_of(model, model.inner.layers) == [model.inner]
    row = nn.Sequential(nn.Linear(2, 2), nn.Sequential(layer(2), layer(2)))
    assert callers_of(row, list(row[1])) == [row[1]]
