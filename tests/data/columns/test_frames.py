"""Frames of the real pandas and data sets of the real datasets: the same numbers as by hand."""

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import brim
from brim.data.columns.frames import plain_columns, refuse_other_frames
from brim.errors import DataError

pytestmark = pytest.mark.usefixtures("own_folder")

N = 20
NUMBERS = np.random.default_rng(0).standard_normal((N, 3)).astype("float32")
FRAME = pd.DataFrame(NUMBERS, columns=["a", "b", "c"])
TARGET = pd.Series(NUMBERS.sum(1), name="y")


def test_a_frame_is_the_matrix_of_its_columns_and_a_series_a_vector():
    assert np.array_equal(plain_columns(FRAME), NUMBERS)
    assert np.array_equal(plain_columns(TARGET), TARGET.to_numpy())
    assert plain_columns(FRAME).dtype == np.float32


def test_columns_of_several_types_share_the_smallest_that_holds_them_all():
    mixed = FRAME.assign(n=np.arange(N, dtype="int8"), flag=[True, False] * (N // 2))
    made = plain_columns(mixed)
    assert made.dtype == np.float32 and made[:, 3].tolist() == list(range(N)) and made[:2, 4].tolist() == [1, 0]


def test_pandas_own_types_are_numpys_where_nothing_is_missing():
    assert plain_columns(pd.Series(pd.array([1, 2], dtype="Int32"))).dtype == np.int32
    assert plain_columns(pd.Series(pd.array([True, False], dtype="boolean"))).dtype == np.bool_
    assert plain_columns(pd.Series(pd.array([1.5, 2], dtype="Float32"))).dtype == np.float32


def test_arrays_of_pandas_and_an_index_are_columns_by_position():
    other_order = FRAME.iloc[::-1]
    for column in (pd.array(range(N), dtype="Int64"), pd.RangeIndex(N)):
        inputs, target = plain_columns((other_order, column))
        assert np.array_equal(inputs, NUMBERS[::-1]) and target.tolist() == list(range(N))


def test_written_numbers_are_read_as_the_sentence_says():
    written = FRAME.astype({"a": str, "b": object})
    read = written.assign(**written[["a", "b"]].apply(pd.to_numeric))
    assert np.allclose(plain_columns(read), NUMBERS)


def test_what_is_read_is_a_copy():
    frame = FRAME.copy()
    made = plain_columns(frame)
    frame.iloc[0, 0] = 99.0
    assert made[0, 0] == NUMBERS[0, 0]


@pytest.mark.parametrize(
    "pair",
    [
        (FRAME, TARGET), (FRAME, TARGET.to_numpy()), (FRAME, torch.tensor(TARGET.to_numpy())),
        (NUMBERS, TARGET), (torch.tensor(NUMBERS), TARGET), (FRAME, TARGET.tolist()), (NUMBERS, TARGET.tolist()),
        (torch.tensor(NUMBERS), TARGET.tolist()), (NUMBERS.tolist(), TARGET),
    ],
)  # fmt: skip
def test_any_mixture_is_inputs_and_target(pair):
    x, y = next(iter(brim.Loader(pair, N, shuffle=False)))
    assert torch.equal(x, torch.tensor(NUMBERS)) and torch.equal(y, torch.tensor(TARGET.to_numpy()))


def test_frames_in_dicts_and_within_tuples_are_columns():
    batch = next(iter(brim.Loader({"x": FRAME, "y": TARGET}, N, shuffle=False)))
    assert batch["x"].shape == (N, 3)
    (left, right), y = next(iter(brim.Loader(((FRAME, FRAME), TARGET), N, shuffle=False)))
    assert left.shape == right.shape == (N, 3) and y.shape == (N,)


def test_lists_of_numbers_are_columns_in_a_dict_and_nowhere_else():
    assert plain_columns({"a": [1, 2], "b": [1.0, 2.0]})["b"].dtype == torch.float32
    for data in ([1, 2], ([1, 2], [3, 4]), {"a": ["x", "y"]}, {"a": [1, 2], "b": [1]}, (torch.ones(2), [1])):
        assert plain_columns(data) is data


def test_ready_batches_in_a_tuple_stay_what_they_are():
    batches = ((torch.ones(4, 2), torch.ones(4)), (torch.ones(3, 2), torch.ones(3)))
    assert plain_columns(batches) is batches


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (FRAME.assign(city="x", day=pd.Timestamp("2020")), r"city \(\w+\), day \(datetime64.*df\['city'\].astype"),
        (pd.Series(["a", "b"], name="label"), r"label \(\w+\).*y.astype\('category'\).cat.codes.astype\('int64'\)"),
        (pd.Series(["a", "b"]).astype("category"), "category"),
        (pd.DataFrame({"n": pd.array([1, None], dtype="Int64")}), "gaps: n; fill them"),
        (FRAME.astype(str), r"apply\(pd\.to_numeric\)"),
        (FRAME.astype(object).assign(city="x"), r"df\['city'\].astype"),
        ((FRAME, pd.array(["a", "b"] * (N // 2), dtype="string")), r"pd\.Series\(y\)\.astype\('category'\)"),
        (FRAME[:0], r"shape \(0, 3\) is empty"),
        ((FRAME, TARGET.iloc[::-1]), "same labels in another order"),
        ((FRAME, ["x"] * N), "holds something that is no number"),
    ],
)
def test_what_is_no_number_is_named_with_what_to_do(data, told):
    with pytest.raises(DataError, match=told):
        brim.Loader(data)


def test_other_labels_for_the_same_rows_are_taken_by_position():
    x, y = plain_columns((FRAME, TARGET.set_axis(range(100, 100 + N))))
    assert len(x) == len(y) == N


def by_hand(x, y):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for start in range(0, N, 8):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x[start : start + 8]), y[start : start + 8]).backward()
        optimizer.step()
    return model


def test_a_regression_on_frames_is_that_of_a_plain_loop():
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    data = brim.Loader((FRAME, TARGET.to_frame()), 8, shuffle=False)
    trainer = brim.Trainer(
        model, data, loss_fn=nn.MSELoss(), optimizer=lambda p: torch.optim.SGD(p, lr=0.1), device="cpu", threads=1
    )
    trainer.fit()
    plain = by_hand(torch.tensor(NUMBERS), torch.tensor(TARGET.to_numpy())[:, None])
    assert torch.equal(model.weight, plain.weight) and torch.equal(model.bias, plain.bias)
    torch.testing.assert_close(trainer.predict(FRAME), plain(torch.tensor(NUMBERS)).detach())
    expected = nn.functional.mse_loss(plain(torch.tensor(NUMBERS)), torch.tensor(TARGET.to_numpy())[:, None])
    assert trainer.evaluate((FRAME, TARGET.to_frame()))["loss"] == pytest.approx(float(expected))


# Hugging Face's data sets

STORED = datasets.Dataset.from_dict({"x": NUMBERS.tolist(), "y": TARGET.tolist()})


def squares(model, batch):
    return (model(batch["x"])[:, 0] - batch["y"]).square().mean()


@pytest.mark.parametrize(
    "data",
    [
        STORED.with_format("torch"), brim.Loader(STORED.with_format("torch"), 8, shuffle=False),
        DataLoader(STORED.with_format("torch"), batch_size=8), STORED.to_iterable_dataset().with_format("torch"),
        STORED.add_column("name", ["a"] * N).with_format("torch"),
    ],
    ids=["stored", "loader", "torch's loader", "stream", "with texts"],
)  # fmt: skip
def test_a_data_set_of_datasets_trains(data):
    assert brim.Trainer(nn.Linear(3, 1), data, loss_fn=squares, device="cpu", threads=1).fit().steps >= 1


def test_one_that_gives_lists_is_met_with_its_format():
    with pytest.raises(brim.BrimError, match=r"ds.with_format\('torch'\)"):
        brim.Trainer(nn.Linear(3, 1), STORED, loss_fn=squares, device="cpu", threads=1).fit()


def test_several_in_one_are_refused_with_their_names():
    with pytest.raises(DataError, match=r"\('train', 'test'\); hand over one: ds\['train'\]"):
        refuse_other_frames(datasets.DatasetDict(train=STORED, test=STORED))
