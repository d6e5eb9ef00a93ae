import io
import os
import pickle
import shutil
import tarfile
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from brim.data.loader import Loader
from brim.data.tar.packing import pack
from brim.data.tar.shards import DamagedSample, Shards
from brim.errors import ConfigError, DataError

SAMPLES = [{"__key__": f"s{number}", "x": torch.full((3,), number), "cls": number} for number in range(10)]


@pytest.fixture
def folder(tmp_path):
    pack(SAMPLES, tmp_path / "shards", samples_per_shard=4)
    return tmp_path / "shards"


def flip_bit(path, sample_content):
    """Flip a bit in the first place where these bytes are."""
    content = bytearray(path.read_bytes())
    content[content.index(sample_content)] ^= 1
    path.write_bytes(content)


def numbers(samples):
    return [sample["cls"] for sample in samples]


def test_samples_are_dicts_in_the_order_they_were_packed(folder):
    data = Shards(folder)
    assert (len(data), data.counts, data.fields) == (10, [4, 4, 2], ("x.npy", "cls"))
    for number, sample in enumerate(data[position] for position in range(10)):
        assert list(sample) == ["__key__", "x.npy", "cls"]
        assert (sample["__key__"], sample["x.npy"].tolist(), sample["cls"]) == (f"s{number}", [number] * 3, number)
    assert data.key(7) == "s7"


def test_several_samples_come_in_the_order_asked_for(folder):
    asked = [9, 0, 5, 5, -1, 3]
    assert numbers(Shards(folder).__getitems__(asked)) == [9, 0, 5, 5, 9, 3]


@pytest.mark.parametrize("number", [10, -11])
def test_a_number_beyond_the_samples_is_an_index_error(folder, number):
    with pytest.raises(IndexError, match="there are 10 samples"):
        Shards(folder)[number]


def test_tensors_of_a_sample_belong_to_the_reader(folder):
    data = Shards(folder)
    data[0]["x.npy"].add_(1)
    assert data[0]["x.npy"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_torch_loader_reads_them_with_and_without_workers(folder, workers):
    data = Shards(folder)
    data[0]  # so that a fork inherits an open file
    batches = list(DataLoader(data, batch_size=4, num_workers=workers))
    assert torch.cat([batch["cls"] for batch in batches]).tolist() == list(range(10))


def test_a_pickled_copy_reads_the_same(folder):
    data = Shards(folder, fields=["cls"])
    data[0]
    assert numbers(pickle.loads(pickle.dumps(data)).__getitems__(list(range(10)))) == list(range(10))


def test_a_pattern_and_a_list_choose_among_the_shards(folder):
    assert numbers(Shards(f"{folder}/shard-{{000001..000002}}.tar").__getitems__([0, 5])) == [4, 9]
    assert numbers(Shards([folder / "shard-000002.tar", folder / "shard-000000.tar"]).__getitems__([0, 2])) == [8, 0]


def test_only_the_fields_asked_for_are_read(folder):
    assert Shards(folder, fields=["CLS"])[3] == {"__key__": "s3", "cls": 3}


def test_a_field_that_no_sample_has_is_answered_with_those_there_are(folder):
    with pytest.raises(ConfigError, match=r"no sample has the field 'jpg'; the shards have x\.npy, cls"):
        Shards(folder, fields=["jpg"])
    with pytest.raises(ConfigError, match=r"must be a list of names"):
        Shards(folder, fields="cls")


def test_a_sample_without_a_field_that_was_asked_for_is_named(tmp_path):
    pack([{"__key__": "a", "txt": "x", "cls": 1}, {"__key__": "b", "txt": "y"}], tmp_path)
    data = Shards(tmp_path, fields=["txt", "cls"])
    assert data[0]["cls"] == 1
    with pytest.raises(DataError, match=r"the sample 'b' in .*shard-000000\.tar lacks the field cls"):
        data[1]
    assert Shards(tmp_path)[1] == {"__key__": "b", "txt": "y"}


def test_shards_with_different_fields_in_different_order_are_read_together(tmp_path):
    for name, sample in (("a", {"cls": 1, "txt": "x"}), ("b", {"json": [2], "txt": "y", "cls": 2})):
        pack([sample], tmp_path / name)
    data = Shards([tmp_path / "a", tmp_path / "b"])
    assert [data[0], data[1]] == [
        {"__key__": "000000000", "cls": 1, "txt": "x"},
        {"__key__": "000000000", "json": [2], "txt": "y", "cls": 2},
    ]


def test_without_decoding_fields_are_bytes(folder):
    assert Shards(folder, decode=False, fields=["cls"])[3] == {"__key__": "s3", "cls": b"3"}


def test_a_transform_has_the_last_word(folder):
    assert Shards(folder, transform=lambda sample: sample["cls"] * 2).__getitems__([4, 1]) == [8, 2]


def test_a_transform_draws_in_a_batch_as_it_draws_sample_by_sample(folder):
    data, asked = Shards(folder, transform=lambda sample: (sample["cls"], torch.rand(()).item())), [9, 0, 5, 2]
    torch.manual_seed(0)
    one_by_one = [data[number] for number in asked]
    torch.manual_seed(0)
    assert data.__getitems__(asked) == one_by_one


def test_pickles_are_refused_at_opening_unless_allowed_or_left_out(tmp_path):
    pack([{"x.pkl": pickle.dumps({1}), "cls": 1}], tmp_path)
    with pytest.raises(DataError, match=r"the field 'x\.pkl' is a pickle"):
        Shards(tmp_path)
    assert Shards(tmp_path, allow_pickle=True)[0]["x.pkl"] == {1}
    assert Shards(tmp_path, fields=["cls"])[0]["cls"] == 1
    assert Shards(tmp_path, decode=False)[0]["x.pkl"] == pickle.dumps({1})


def test_the_order_of_an_epoch_visits_all_and_is_told_by_seed_and_epoch(folder):
    data = Shards(folder)
    order = data.epoch_order(3, 5)
    assert sorted(order.tolist()) == list(range(10))
    assert torch.equal(Shards(folder).epoch_order(3, 5), order)
    assert not torch.equal(data.epoch_order(3, 6), order)


def test_a_flipped_bit_is_an_error_that_names_file_and_sample(folder):
    flip_bit(folder / "shard-000001.tar", np.full(3, 5).tobytes())
    data = Shards(folder)
    sentence = r"the sample 's5' in .*shard-000001\.tar does not have the sum it was written with"
    with pytest.raises(DataError, match=sentence):
        data[5]
    with pytest.raises(DataError, match=sentence):
        data.__getitems__([4, 5])
    assert data[4]["cls"] == 4


def test_skipping_leaves_out_damaged_samples_and_warns_once_per_file(folder):
    for number in (5, 6):
        flip_bit(folder / "shard-000001.tar", np.full(3, number).tobytes())
    data = Shards(folder, on_damage="skip")
    with pytest.warns(UserWarning, match=r"left out: the sample 's5' in .*shard-000001\.tar") as warned:
        assert numbers(data.__getitems__([6, 7, 5, 0])) == [7, 0]
        assert numbers(data.__getitems__([6, 4])) == [4]
    assert len(warned) == 1
    with pytest.raises(DataError, match="'s5'"):
        data[5]


def test_a_batch_of_which_nothing_is_left_is_an_error(folder):
    flip_bit(folder / "shard-000001.tar", np.full(3, 5).tobytes())
    with pytest.warns(UserWarning), pytest.raises(DataError, match="every sample of a batch is damaged"):
        Shards(folder, on_damage="skip").__getitems__([5])


def test_a_field_that_cannot_be_decoded_counts_as_damage(tmp_path):
    pack([{"npy": b"no array", "cls": 0}, {"npy": torch.ones(1), "cls": 1}], tmp_path)
    sentence = r"the field 'npy' of the sample '000000000' in .* cannot be decoded: ValueError: it does not start"
    with pytest.raises(DataError, match=sentence):
        Shards(tmp_path)[0]
    with pytest.warns(UserWarning, match=sentence):
        assert numbers(Shards(tmp_path, on_damage="skip").__getitems__([0, 1])) == [1]


def test_a_cut_shard_is_an_error_or_left_out_with_a_warning(folder):
    os.truncate(folder / "shard-000000.tar", 4500)
    with pytest.raises(DataError, match=r"shard-000000\.tar has 4,500 bytes .* lacks 2 samples, from 's2' on; fetch"):
        Shards(folder)
    with pytest.warns(UserWarning, match="lacks 2 samples, from 's2' on; going on without what is missing") as warned:
        data = Shards(folder, on_damage="skip")
    assert len(warned) == 1
    assert numbers(data.__getitems__(list(range(len(data))))) == [0, 1, 4, 5, 6, 7, 8, 9]


def test_a_shard_that_is_cut_after_opening_is_damage_at_reading(folder):
    data = Shards(folder)
    os.truncate(folder / "shard-000000.tar", 4500)
    with pytest.raises(DataError, match=r"the sample 's3' in .* is cut off"):
        data[3]
    (folder / "shard-000001.tar").unlink()
    with pytest.raises(DataError, match=r"the sample 's4' in .* cannot be read: No such file"):
        data[4]


def test_whole_shards_give_no_warning(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Shards(folder, on_damage="skip").__getitems__(list(range(10)))) == 10


def test_nothing_is_written_beside_the_index_when_reading(folder):
    for name in ("index.json", "index.npy"):
        (folder / name).unlink()
    Shards(folder).__getitems__(list(range(10)))
    there = sorted(path.name for path in folder.iterdir())
    assert there == ["index.json", "index.npy", *(f"shard-00000{number}.tar" for number in range(3))]


def test_shards_without_a_sample_are_one_sentence(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w"):
        pass
    with pytest.raises(DataError, match=r"no sample is found in .*a\.tar"):
        Shards(tmp_path)


def test_an_unknown_way_to_treat_damage_is_refused(folder):
    with pytest.raises(ConfigError, match="on_damage='ignore' is not known; use 'error' or 'skip'"):
        Shards(folder, on_damage="ignore")


def test_shards_of_webdataset_are_read_as_webdataset_reads_them(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    with webdataset.ShardWriter(f"{tmp_path}/w-%06d.tar", maxcount=3, verbose=0) as sink:
        for number in range(7):
            sink.write({"__key__": f"a/{number}", "x.npy": np.full((2, 2), number), "txt": "größe", "cls": number,
                        "json": {"n": number}})  # fmt: skip
    data = Shards(tmp_path)
    assert data.counts == [3, 3, 1]
    stream = webdataset.WebDataset(sorted(map(str, tmp_path.glob("*.tar"))), shardshuffle=False).decode()
    theirs = list(stream)
    assert len(theirs) == len(data)
    for number, their in enumerate(theirs):
        mine = data[number]
        assert np.array_equal(mine.pop("x.npy").numpy(), their.pop("x.npy"))
        assert mine == {name: value for name, value in their.items() if name in mine}
        assert set(mine) == {"__key__", "txt", "cls", "json"}


def test_webdataset_reads_the_shards_that_brim_packs(folder):
    webdataset = pytest.importorskip("webdataset")
    stream = webdataset.WebDataset(sorted(map(str, folder.glob("*.tar"))), shardshuffle=False).decode()
    for sample, their in zip(SAMPLES, list(stream), strict=True):
        assert (their["__key__"], their["cls"]) == (sample["__key__"], sample["cls"])
        assert np.array_equal(their["x.npy"], sample["x"].numpy())


def test_an_index_written_by_hand_cannot_make_the_reader_leave_the_folder(folder, tmp_path):
    secret = tmp_path / "secret.tar"
    shutil.copy(folder / "shard-000000.tar", secret)
    index = (folder / "index.json").read_text()
    (folder / "index.json").write_text(index.replace("shard-000000.tar", "../secret.tar"))
    with pytest.raises(DataError, match="missing"):
        Shards(folder)


def test_a_picture_and_its_label_make_a_batch(tmp_path):
    image = pytest.importorskip("PIL.Image")
    content = io.BytesIO()
    image.new("L", (5, 4)).save(content, "png")
    pack([{"png": content.getvalue(), "cls": 1}] * 3, tmp_path)
    batch = next(iter(DataLoader(Shards(tmp_path), batch_size=3)))
    assert (batch["png"].shape, batch["cls"].tolist()) == ((3, 3, 4, 5), [1, 1, 1])


def test_a_field_is_decoded_by_the_function_that_is_given_for_it(folder):
    data = Shards(folder, decode={"X.npy": len, "cls": lambda content: 10 * int(bytes(content))})
    sample = data[3]
    assert (sample["x.npy"] > 80, sample["cls"]) == (True, 30)
    with pytest.raises(ConfigError, match=r"'jpg'.*no sample has this field; the shards have x.npy, cls"):
        Shards(folder, decode={"jpg": len})


def test_what_a_decoder_of_the_user_raises_names_the_sample(folder):
    def decode(content):
        raise ValueError("no picture")

    with pytest.raises(
        DataError, match=r"the field 'cls' of the sample 's3' in .*cannot be decoded: ValueError: no pic"
    ):
        Shards(folder, decode={"cls": decode})[3]


def odd_is_damaged(sample):
    if sample["cls"] % 2:
        raise DamagedSample("is odd")
    return sample["cls"]


def test_a_transform_may_say_that_a_sample_is_damaged(folder):
    with pytest.raises(DataError, match=r"the sample 's3' in .*is odd"):
        Shards(folder, transform=odd_is_damaged)[3]
    with pytest.warns(UserWarning, match="is odd"):
        assert Shards(folder, transform=odd_is_damaged, on_damage="skip").__getitems__([0, 1, 2, 3]) == [0, 2]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:left out")
def test_a_loader_says_how_many_damaged_samples_a_pass_went_without(folder, workers):
    data = Shards(folder, transform=odd_is_damaged, on_damage="skip")
    loader, said = Loader(data, 4, num_workers=workers), []
    loader.report = said.append
    for _ in range(2):
        assert sorted(number for batch in loader for number in batch.tolist()) == [0, 2, 4, 6, 8]
    assert said == ["5 damaged samples were left out in this pass over Shards"] * 2


def test_a_sample_that_lacks_a_field_is_damaged(tmp_path):
    pack([{"txt": "a", "cls": 0}, {"txt": "b"}, {"txt": "c", "cls": 2}], tmp_path)
    with pytest.raises(DataError, match=r"the sample '000000001' in .*lacks the field cls.*on_damage='skip'"):
        Shards(tmp_path, fields=["txt", "cls"])[1]
    with pytest.warns(UserWarning, match="lacks the field cls"):
        read = Shards(tmp_path, fields=["txt", "cls"], on_damage="skip").__getitems__([0, 1, 2])
    assert numbers(read) == [0, 2]


def test_one_field_of_all_samples_is_read_without_the_others(tmp_path):
    pack([{"txt": "a", "cls": 0}, {"txt": "b"}, {"txt": "c", "cls": 2}], tmp_path, samples_per_shard=2)
    assert list(Shards(tmp_path).column("cls")) == [0, None, 2]
    assert list(Shards(tmp_path, decode={"txt": bytes}).column("txt")) == [b"a", b"b", b"c"]
