"""What a graph reads is the batch that was handed over: copied in, or picked from a block."""

from collections import namedtuple

import hypothesis.strategies as st
import pytest
import torch
from helpers.examples import examples
from hypothesis import given
from torch import Tensor

from brim.engine.captured import inputs as inputs_room
from brim.engine.captured.inputs import BlockInputs, CopiedInputs, Cursor, LossRing, read_window

CPU = torch.device("cpu")
LENGTH = 4
Pair = namedtuple("Pair", "x y")
KINDS = {
    "tuple": lambda x, y: (x, y),
    "dict": lambda x, y: {"x": x, "name": "train", "y": y},
    "named tuple": Pair,
    "nested": lambda x, y: [{"a": x}, (y, 2, None)],
}


def make_blocks(batches, seed=0):
    """Two columns of different type and width, for so many batches."""
    rows = batches * LENGTH
    x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))
    return x, torch.arange(rows) + 1000 * seed


def batch_of(blocks, row, kind=KINDS["tuple"], length=LENGTH):
    return kind(*[block[row : row + length] for block in blocks])


def lone_batch(seed, kind=KINDS["tuple"]):
    return kind(*make_blocks(1, seed + 500))


def read(inputs, batch):
    """What a replay does: filled by the host, then the step on the window, which moves the cursor on."""
    inputs.fill(read_window([batch])[0])
    window = inputs.window()
    inputs.cursor.advance()
    return window


def assert_same(window, batch):
    got, key = read_window(window)
    expected, expected_key = read_window([batch])
    assert key == expected_key
    assert type(window[0]) is type(batch)
    assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))


def count_copies(monkeypatch):
    copies = []
    plain = BlockInputs._copy
    monkeypatch.setattr(BlockInputs, "_copy", lambda self, tensors: (copies.append(1), plain(self, tensors))[1])
    return copies


def test_the_cursor_moves_by_a_batch_and_a_slot():
    cursor = Cursor(LENGTH, CPU)
    assert cursor.rows.tolist() == [0, 1, 2, 3] and cursor.slot.tolist() == [0]
    cursor.advance()
    cursor.advance()
    assert cursor.rows.tolist() == [8, 9, 10, 11] and cursor.slot.tolist() == [2]


def test_the_cursor_goes_to_a_row_and_leaves_the_slot_where_it_is():
    cursor = Cursor(LENGTH, CPU)
    cursor.advance()
    cursor.go_to(20)
    assert cursor.rows.tolist() == [20, 21, 22, 23] and cursor.row == 20
    assert cursor.slot.tolist() == [1]


def test_a_cursor_for_no_rows_counts_slots():
    cursor = Cursor(0, CPU)
    cursor.advance()
    assert cursor.rows.tolist() == [] and cursor.slot.tolist() == [1]


def test_the_cursor_stays_in_its_memory():
    """A graph reads it there."""
    cursor = Cursor(LENGTH, CPU)
    before = cursor.rows.data_ptr(), cursor.slot.data_ptr()
    cursor.go_to(7)
    cursor.advance()
    assert (cursor.rows.data_ptr(), cursor.slot.data_ptr()) == before


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_copied_inputs_hold_each_batch_in_the_same_memory(kind):
    first = lone_batch(0, kind)
    inputs = CopiedInputs([first])
    places = [tensor.data_ptr() for tensor in read_window(inputs.window())[0]]
    for seed in range(3):
        batch = lone_batch(seed, kind)
        window = read(inputs, batch)
        assert_same(window, batch)
        assert [tensor.data_ptr() for tensor in read_window(window)[0]] == places


def test_copied_inputs_take_windows_of_several_batches():
    windows = [[lone_batch(seed), batch_of(make_blocks(2, seed), 3, length=2)] for seed in range(3)]
    inputs = CopiedInputs(windows[0])
    for window in windows:
        inputs.fill(read_window(window)[0])
        for held, batch in zip(inputs.window(), window, strict=True):
            assert_same([held], batch)


def test_copied_inputs_do_not_share_memory_with_the_first_batch():
    x, y = make_blocks(1)
    inputs = CopiedInputs([(x, y)])
    expected = x.clone()
    x.zero_()
    assert torch.equal(inputs.window()[0][0], expected)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_rows_of_a_block_are_copied_in_once(kind, monkeypatch):
    blocks = make_blocks(5)
    inputs = BlockInputs([batch_of(blocks, 0, kind)])
    copies = count_copies(monkeypatch)
    for row in range(0, 5 * LENGTH, LENGTH):
        assert_same(read(inputs, batch_of(blocks, row, kind)), batch_of(blocks, row, kind))
    assert len(copies) == 1


def test_in_order_the_host_does_not_touch_the_cursor(monkeypatch):
    """The point of blocks: a replay alone goes on to the next rows."""
    blocks = make_blocks(5)
    inputs = BlockInputs([batch_of(blocks, 0)])
    read(inputs, batch_of(blocks, 0))
    monkeypatch.setattr(Cursor, "go_to", lambda self, row: pytest.fail("the cursor was moved"))
    for row in range(LENGTH, 5 * LENGTH, LENGTH):
        assert_same(read(inputs, batch_of(blocks, row)), batch_of(blocks, row))


@pytest.mark.parametrize("rows", [[0, 8, 4], [4, 4, 4], [0, 1, 2, 3], [12, 0, 12], [3, 16, 0, 5]])
def test_jumps_within_a_block_are_followed(rows):
    blocks = make_blocks(5)
    inputs = BlockInputs([batch_of(blocks, 0)])
    for row in rows:
        assert_same(read(inputs, batch_of(blocks, row)), batch_of(blocks, row))


def test_a_block_that_starts_in_the_middle_is_copied_again_for_the_rows_before(monkeypatch):
    blocks = make_blocks(5)
    inputs = BlockInputs([batch_of(blocks, 0)])
    copies = count_copies(monkeypatch)
    for row in (8, 12, 16, 4, 8, 0):
        assert_same(read(inputs, batch_of(blocks, row)), batch_of(blocks, row))
    assert len(copies) == 3  # from 8, from 4, from 0


def test_another_block_with_the_same_rows_is_not_taken_for_the_first():
    one, two = make_blocks(3, 1), make_blocks(3, 2)
    inputs = BlockInputs([batch_of(one, 0)])
    for blocks in (one, two, one, two):
        for row in (0, 4):
            assert_same(read(inputs, batch_of(blocks, row)), batch_of(blocks, row))


def test_a_batch_by_itself_between_rows_of_a_block():
    blocks = make_blocks(3)
    inputs = BlockInputs([batch_of(blocks, 0)])
    for batch in (batch_of(blocks, 0), lone_batch(1), batch_of(blocks, 4), lone_batch(2), lone_batch(3)):
        assert_same(read(inputs, batch), batch)


def test_a_batch_by_itself_that_is_written_to_is_copied_each_time():
    inputs = BlockInputs([batch_of(make_blocks(2), 0)])
    x, y = lone_batch(1)
    for number in range(3):
        x.fill_(number)
        assert_same(read(inputs, (x, y)), (x, y))


@pytest.mark.parametrize("batches", [1, 2, 3])
@pytest.mark.parametrize("limit", ["batches", "bytes"])
def test_blocks_larger_than_the_memory_for_them_are_copied_in_parts(batches, limit, monkeypatch):
    row_bytes = 3 * 4 + 8
    if limit == "batches":
        monkeypatch.setattr(inputs_room, "MOST_BATCHES", batches)
    else:
        monkeypatch.setattr(inputs_room, "MOST_BLOCK_BYTES", batches * LENGTH * row_bytes)
    blocks = make_blocks(7)
    inputs = BlockInputs([batch_of(blocks, 0)])
    assert [len(block) for block in inputs._blocks] == [batches * LENGTH] * 2
    copies = count_copies(monkeypatch)
    for row in range(0, 7 * LENGTH, LENGTH):
        assert_same(read(inputs, batch_of(blocks, row)), batch_of(blocks, row))
    assert len(copies) == -(-7 // batches)


def test_there_is_always_room_for_one_batch(monkeypatch):
    monkeypatch.setattr(inputs_room, "MOST_BLOCK_BYTES", 1)
    blocks = make_blocks(3)
    inputs = BlockInputs([batch_of(blocks, 0)])
    for row in (0, 4, 8, 2):
        assert_same(read(inputs, batch_of(blocks, row)), batch_of(blocks, row))


def test_the_tail_of_a_block_that_is_shorter_than_a_batch_is_not_read():
    x, y = make_blocks(3)
    blocks = x[: 2 * LENGTH + 2].clone(), y[: 2 * LENGTH + 2].clone()
    inputs = BlockInputs([batch_of(blocks, 0)])
    for row in (0, 4, 6, 2):
        assert_same(read(inputs, batch_of(blocks, row)), batch_of(blocks, row))


def test_what_was_read_stays_when_the_next_batch_comes():
    """An eager step on the same inputs keeps its batch for the backward pass."""
    blocks = make_blocks(3)
    inputs = BlockInputs([batch_of(blocks, 0)])
    window = read(inputs, batch_of(blocks, 0))
    read(inputs, lone_batch(1))
    assert_same(window, batch_of(blocks, 0))


places = st.one_of(
    st.tuples(st.integers(0, 2), st.integers(0, 6 * LENGTH)),  # a block, and a row in it
    st.tuples(st.integers(0, 2), st.none()),  # the next rows of a block
    st.tuples(st.none(), st.integers(0, 3)),  # a batch by itself
)


@examples(200)
@given(
    steps=st.lists(places, min_size=1, max_size=30),
    kind=st.sampled_from(list(KINDS)),
    room=st.integers(1, 9),
    tail=st.integers(0, LENGTH - 1),
)
def test_any_order_of_batches_gives_each_batch(steps, kind, room, tail):
    made = [make_blocks(7, seed) for seed in range(3)]
    blocks = [[column[: len(column) - tail].clone() for column in pair] for pair in made]
    last = 7 * LENGTH - tail - LENGTH
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs_room, "MOST_BATCHES", room)
        inputs = BlockInputs([batch_of(blocks[0], 0, KINDS[kind])])
    next_row = [0, 0, 0]
    for block, row in steps:
        if block is None:
            batch = lone_batch(row, KINDS[kind])
        else:
            row = min(next_row[block] if row is None else row, last)
            next_row[block] = row + LENGTH if row + LENGTH <= last else 0
            batch = batch_of(blocks[block], row, KINDS[kind])
        assert_same(read(inputs, batch), batch)


SUITABLE = {
    "rows": lambda x, y: (x[4:8], y[4:8]),
    "all rows": lambda x, y: (x[:], y[:]),
    "one row": lambda x, y: (x[5:6], y[5:6]),
    "rows of rows": lambda x, y: (x[2:10][2:6], y[2:10][2:6]),
}
UNSUITABLE = {
    "no views": lambda x, y: (x, y),
    "a copy": lambda x, y: (x[4:8], y[4:8].clone()),
    "other rows": lambda x, y: (x[4:8], y[0:4]),
    "another number of rows": lambda x, y: (x[4:8], y[4:9]),
    "another block length": lambda x, y: (x[4:8], torch.zeros(9)[4:8]),
    "every second row": lambda x, y: (x[0:8:2], y[0:8:2]),
    "some columns": lambda x, y: (x[4:8, :2], y[4:8]),
    "a single number": lambda x, y: (x[4:8], y[4]),
    "turned round": lambda x, y: (x.T[:, 4:8], y[4:8]),
    "a row": lambda x, y: (x[4], y[4:7]),
}


@pytest.mark.parametrize("batch", SUITABLE.values(), ids=SUITABLE)
def test_rows_of_blocks_suit(batch):
    assert BlockInputs.suit([batch(*make_blocks(3))])


@pytest.mark.parametrize("batch", UNSUITABLE.values(), ids=UNSUITABLE)
def test_what_is_not_the_same_rows_of_blocks_does_not_suit(batch):
    assert not BlockInputs.suit([batch(*make_blocks(3))])


def test_blocks_that_are_turned_round_or_empty_do_not_suit():
    assert not BlockInputs.suit([(torch.zeros(3, 12).T[4:8],)])
    assert not BlockInputs.suit([(torch.zeros(0, 3)[:],)])


def test_windows_of_several_batches_do_not_suit():
    blocks = make_blocks(3)
    assert not BlockInputs.suit([batch_of(blocks, 0), batch_of(blocks, 4)])


def test_bits_that_are_read_as_another_type_are_read_so():
    x, _ = make_blocks(3)
    rows = x.view(torch.int32)[4:8]
    assert_same(read(BlockInputs([(rows,)]), (rows,)), (rows,))


def test_rows_that_are_conjugated_when_they_are_read_are_conjugated():
    rows = torch.randn(12, 3, dtype=torch.complex64).conj()[4:8]
    assert_same(read(BlockInputs([(rows,)]), (rows,)), (rows,))


def test_rows_that_begin_within_a_row_do_not_suit():
    x, _ = make_blocks(3)
    assert not BlockInputs.suit([(x.flatten()[1:13].view(4, 3),)])


def test_another_second_column_beside_the_same_first_one_is_read():
    x, y = make_blocks(3)
    other = -y
    inputs = BlockInputs([(x[0:4], y[0:4])])
    for batch in ((x[0:4], y[0:4]), (x[4:8], other[4:8]), (x[8:12], y[8:12].clone())):
        assert_same(read(inputs, batch), batch)


def kept(ring, cursor, loss):
    """What a replay does with its loss."""
    ring.before_replay()
    ring.keep(torch.tensor(loss))
    cursor.advance()
    return ring.take()


@given(size=st.integers(1, 5), steps=st.integers(1, 20))
def test_a_loss_lasts_for_as_many_steps_as_the_ring_has_slots(size, steps):
    cursor = Cursor(LENGTH, CPU)
    ring = LossRing(size, torch.tensor(0.0), cursor)
    losses: list[Tensor] = []
    for step in range(steps):
        losses.append(kept(ring, cursor, float(step)))
        last = losses[-size:]
        assert [float(loss) for loss in last] == [float(number) for number in range(step + 1 - len(last), step + 1)]


def test_a_ring_begins_at_its_first_slot_wherever_the_cursor_was():
    cursor = Cursor(LENGTH, CPU)
    for _ in range(5):
        cursor.advance()
    ring = LossRing(2, torch.tensor(0.0), cursor)
    assert float(kept(ring, cursor, 7.0)) == 7.0
    assert cursor.rows.tolist() == [24, 25, 26, 27]  # the rows are not the ring's


def test_a_ring_keeps_the_type_of_the_loss_and_its_scalar_shape():
    cursor = Cursor(0, CPU)
    ring = LossRing(3, torch.tensor(0.0, dtype=torch.float64), cursor)
    ring.before_replay()
    ring.keep(torch.tensor(1.5, dtype=torch.float64))
    loss = ring.take()
    assert loss.dtype is torch.float64 and loss.dim() == 0 and float(loss) == 1.5
