import json
import struct
from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

from brim.data.batches.batch import map_leaves
from brim.data.cache.packed_sample import NUMPY_DTYPES, TORCH_DTYPES, as_bytes, pack
from brim.data.cache.packed_store import Damaged, PackedStore, classes_in
from brim.data.cache.packed_writer import MOST_LAYOUTS, PackedWriter
from brim.errors import DataError


class Pair(NamedTuple):
    left: Any
    right: Any


Nothing = namedtuple("Nothing", [])


def store_of(folder, samples):
    writer = PackedWriter(folder)
    for index, sample in enumerate(samples):
        writer.add(pack(sample, index))
    writer.finish({})
    store = PackedStore(folder)
    for sample in samples:
        store.classes.update(classes_in(sample))
    return store


def exact(part):
    """A sample with its types and bits spelled out, so that == means the same."""
    kind = type(part)
    if isinstance(part, dict):
        return kind, [(key, exact(value)) for key, value in part.items()]
    if isinstance(part, tuple | list):
        return kind, [exact(value) for value in part]
    if isinstance(part, torch.Tensor):
        return kind, part.dtype, tuple(part.shape), as_bytes(part).numpy().tobytes()
    if isinstance(part, np.ndarray | np.generic):
        return kind, part.dtype, part.shape, part.tobytes()
    return kind, struct.pack("d", part) if kind is float else part


shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
tensors = st.builds(
    lambda shape, dtype, seed: torch.from_numpy(np.random.default_rng(seed).integers(0, 2, shape)).to(dtype),
    shapes,
    st.sampled_from(list(TORCH_DTYPES.values())),
    st.integers(0, 99),
)
arrays = st.builds(
    lambda shape, dtype, seed: np.random.default_rng(seed).integers(0, 100, shape).astype(dtype),
    shapes,
    st.sampled_from(sorted(NUMPY_DTYPES)),
    st.integers(0, 99),
)
numbers = st.integers() | st.floats() | st.booleans() | st.sampled_from([np.float32(1.5), np.int8(3), np.bool_(True)])
texts = st.text(st.characters(), max_size=4) | st.just("\udc80 alone") | st.binary(max_size=4) | st.none()
leaves = tensors | arrays | numbers | texts | st.lists(st.integers(), max_size=5) | st.lists(st.text(max_size=3))
nestings = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.just(Nothing())
    ),
    max_leaves=6,
)


@given(st.lists(nestings, min_size=1, max_size=6))
def test_samples_of_any_nesting_come_back_with_their_types_and_bits(tmp_path_factory, samples):
    store = store_of(tmp_path_factory.mktemp("store"), samples)
    assert [exact(store.sample(index)) for index in range(len(samples))] == [exact(sample) for sample in samples]


def a_sample(index):
    """Every kind of leaf that stacks, in every container."""
    x = torch.arange(6).reshape(2, 3) + index
    by_dtype = {name: torch.full((2,), index % 2).to(dtype) for name, dtype in TORCH_DTYPES.items()}
    return {
        "tensors": (x, x.float() / 7, [x[0] > index, torch.tensor(index)]),
        "pair": Pair(index, (index / 3, index % 2 == 0)),
        "arrays": {7: np.full((2,), index, dtype="f4"), 8: np.array(index)},
        "scalars": [np.float32(index), np.int8(index), np.bool_(index % 2)],
        "numbers": [index, index + 1, index + 2],
        "more": (0.5, index / 2),
        "dtypes": by_dtype,
    }


def test_columns_are_what_torchs_default_collate_makes_of_all_samples(tmp_path):
    samples = [a_sample(index) for index in range(5)]
    assert exact(store_of(tmp_path, samples).columns()) == exact(default_collate(samples))


@pytest.mark.parametrize("value", ["text", b"bytes", None, [["a"]], 1 << 80])
def test_samples_with_leaves_that_do_not_stack_are_known_as_such(tmp_path, value):
    assert not store_of(tmp_path, [(torch.zeros(2), value)] * 3).stacks


def test_samples_of_varying_shape_do_not_stack(tmp_path):
    assert not store_of(tmp_path, [torch.zeros(2), torch.zeros(3)]).stacks


def test_what_is_written_into_columns_does_not_reach_the_files(tmp_path):
    store = store_of(tmp_path, [torch.zeros(2), torch.ones(2)])
    store.columns().fill_(7)
    assert PackedStore(tmp_path).columns().tolist() == [[0, 0], [1, 1]]


def test_a_sample_is_a_copy(tmp_path):
    store = store_of(tmp_path, [(torch.zeros(2), np.zeros(2))] * 2)
    for leaf in store.sample(0):
        leaf += 1
    assert [leaf.sum() for leaf in store.sample(0)] == [0, 0]


def test_nothing_in_the_files_is_pickled(tmp_path):
    store_of(tmp_path, [a_sample(0), ("text", [1, 2], None)])
    names = {file.name for file in tmp_path.iterdir()}
    assert {"header.json", "layouts", "rows"} <= names
    assert all(name.endswith(".data") for name in names - {"header.json", "layouts", "rows"})
    assert json.loads((tmp_path / "header.json").read_text())


def test_too_many_structures_are_refused_with_what_to_do(tmp_path):
    samples = [{str(index): 1} for index in range(MOST_LAYOUTS + 1)]
    with pytest.raises(DataError, match=r"256 have 257 different structures.*return tensors"):
        store_of(tmp_path, samples)


RAGGED = [(torch.zeros(2, 2 + i % 2), "text" * i, i) for i in range(4)] + [(1, 2)]


@pytest.mark.parametrize("damage", ["missing", "shorter", "longer", "link"])
def test_a_file_that_is_not_as_it_was_written_is_noticed_at_opening(tmp_path, damage):
    folder = tmp_path / "store"
    folder.mkdir()
    store_of(folder, RAGGED)
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        if damage == "link":
            (tmp_path / "outside").write_bytes(content)
        file.unlink()
        if damage == "link":
            file.symlink_to(tmp_path / "outside")
        elif damage != "missing":
            file.write_bytes(content[:-1] if damage == "shorter" else content + b"\0")
        with pytest.raises(Damaged):
            PackedStore(folder)
        file.unlink(missing_ok=True)
        file.write_bytes(content)
    assert PackedStore(folder).samples == 5


@pytest.mark.parametrize("name", ["0-0.offsets", "0-0.shapes", "layouts", "rows"])
@pytest.mark.parametrize("number", [-1, 1 << 30])
def test_positions_outside_the_data_are_noticed_at_opening(tmp_path, name, number):
    store_of(tmp_path, RAGGED)
    file = tmp_path / name
    size = 4 if name == "layouts" else 8
    file.write_bytes(file.read_bytes()[:-size] + number.to_bytes(size, "little", signed=True))
    with pytest.raises(Damaged):
        PackedStore(tmp_path)


def hostile(header, path, value):
    *way, last = path
    for step in way:
        header = header[step]
    header[last] = value


@pytest.mark.parametrize(
    "path",
    [
        ["format"],
        ["samples"],
        ["layouts"],
        ["layouts", 0, "tree"],
        ["layouts", 0, "tree", "tuple", 1, "leaf"],
        ["layouts", 0, "tree", "tuple", 1, "dtype"],
        ["layouts", 0, "tree", "tuple", 1, "dims"],
        ["layouts", 0, "rows"],
        ["layouts", 0, "leaves"],
        ["layouts", 0, "leaves", 0, "shape"],
        ["layouts", 0, "leaves", 0],
    ],
)
@pytest.mark.parametrize(
    "value", [10**30, 1 << 61, -1, "../../etc/passwd", "/etc/passwd", None, [], {}, [[[]]], True, 1.5, [0, 1 << 61, 9]]
)
def test_a_hostile_header_is_damage_and_nothing_else(tmp_path, path, value):
    store_of(tmp_path, [(torch.zeros(2), i) for i in range(3)])
    header = json.loads((tmp_path / "header.json").read_text())
    hostile(header, path, value)
    (tmp_path / "header.json").write_text(json.dumps(header))
    with pytest.raises(Damaged):
        PackedStore(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 100_000, '{"format": 1}', "\0\0"])
def test_a_header_that_is_not_one_is_damage(tmp_path, text):
    store_of(tmp_path, [1, 2])
    (tmp_path / "header.json").write_text(text)
    with pytest.raises(Damaged):
        PackedStore(tmp_path)


def test_a_batch_is_what_torchs_default_collate_makes_of_its_samples(tmp_path):
    samples = [{**a_sample(index), "empty": torch.zeros(0, 3)} for index in range(5)]
    store = store_of(tmp_path, samples)
    for index in ([4, 0, 4, 2], [1]):
        assert exact(store.batch(torch.tensor(index))) == exact(default_collate([samples[i] for i in index]))


def test_columns_can_be_walked_as_any_batch(tmp_path):
    columns = store_of(tmp_path, [a_sample(index) for index in range(4)]).columns()
    index = torch.tensor([2, 0])
    batch = map_leaves(lambda column: column[index], columns)
    assert exact(batch) == exact(default_collate([a_sample(2), a_sample(0)]))
