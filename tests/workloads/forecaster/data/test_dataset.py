"""Windows as views, and no value of the future in any of them."""

import numpy as np
import pandas as pd
import pytest
import torch

import brim
from brim.errors import BrimError
from brim.workloads.forecaster import LSTMForecaster, SeriesDataset
from brim.workloads.forecaster.data.preparation import Preparation


def hourly(steps=300, seed=0, channels=2):
    values = np.random.default_rng(seed).normal(size=(steps, channels)).cumsum(0)
    return pd.DataFrame(
        values, index=pd.date_range("2024-01-01", periods=steps, freq="h"), columns=["a", "b"][:channels]
    )


def all_of(dataset, split):
    return [torch.stack(column) for column in zip(*dataset.get_split_data(split), strict=True)]


def test_a_window_is_its_rows_scaled():
    frame = hourly()
    made = SeriesDataset(frame, 24, 6)
    train = frame.to_numpy()[:210]
    scaled = (frame.to_numpy() - train.mean(0)) / train.std(0)
    past, target = made.get_split_data("train")[17]
    np.testing.assert_allclose(past, scaled[17:41], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(target, scaled[41:47], rtol=1e-4, atol=1e-5)


def test_windows_are_views_of_the_series():
    made = SeriesDataset(hourly(), 24, 6)
    for column in made.windows().tensors:
        assert column.untyped_storage().data_ptr() == made.values.untyped_storage().data_ptr()


def test_the_loader_gathers_windows_by_columns():
    made = SeriesDataset(hourly(), 24, 6, calendar="auto")
    loader = brim.Loader(made.get_split_data("train"), 32, shuffle=True, device="cpu")
    assert loader.choice.path == "resident on cpu"
    past, target, known = next(iter(loader.batches(0, 0)))
    assert past.shape == (32, 24, 2) and target.shape == (32, 6, 2) and known.shape == (32, 30, 6)


@pytest.mark.parametrize("changed", ["future", "nothing at all", "missing"])
def test_no_value_after_the_border_reaches_training_or_a_prediction(changed):
    """Every value from the border on is another one: training windows and predictions stay, bit for bit."""
    frame = hourly()
    made = SeriesDataset(frame, 24, 6, known="b", target="a", calendar="auto")
    border = made.borders[0].validation
    other = frame.copy()
    if changed == "future":
        other.iloc[border:] = 1e6 * np.random.default_rng(1).normal(size=other.iloc[border:].shape)
    elif changed == "missing":
        other.iloc[border::3, 0] = np.nan
    again = SeriesDataset(other, 24, 6, known="b", target="a", calendar="auto")
    for one, two in zip(all_of(made, "train"), all_of(again, "train"), strict=True):
        assert torch.equal(one, two)
    torch.manual_seed(0)
    model = LSTMForecaster.for_dataset(made, hidden=8, layers=1).eval()
    # The first window that is judged: its past lies before the border, and all of its horizon behind it.
    first, same = (one.get_split_data("validation")[0] for one in (made, again))
    assert torch.equal(first[0], same[0])
    known = torch.cat([first[2][None, :24], first[2][None, 24:]], 1)  # the known future is known
    batch = [first[0][None], first[1][None], known]
    other_batch = [same[0][None], same[1][None], known]
    with torch.no_grad():
        assert torch.equal(model.predict(batch), model.predict(other_batch))


def test_a_change_before_the_border_does_change_training():
    """The test above can fail."""
    frame = hourly()
    made = SeriesDataset(frame, 24, 6)
    other = frame.copy()
    other.iloc[made.borders[0].validation - 1] += 1
    assert not torch.equal(all_of(made, "train")[1], all_of(SeriesDataset(other, 24, 6), "train")[1])


@pytest.mark.parametrize("split", [None, ["2024-03-01", "2024-03-20"], [0.6, 0.2, 0.2]])
def test_no_value_of_one_series_after_the_border_reaches_the_training_of_another(split):
    """Series of different lengths and beginnings, with gaps: the border is one moment for all of them."""
    parts = [panel_part(name, start, steps) for name, start, steps in (("a", 0, 90), ("b", 30, 70), ("late", 85, 20))]
    frame = pd.concat(parts, ignore_index=True).drop(index=[20, 21, 100])
    named = {"target": "y", "series": "id", "known": "price", "static": ["kind", "area"], "calendar": "auto"}
    made = SeriesDataset(frame, 14, 5, split=split, **named)
    borders = [one.times[border.validation] for one, border in zip(made.series, made.borders, strict=True)
               if border.validation < len(one)]  # fmt: skip
    later = frame["date"].to_numpy() >= min(borders)
    other = frame.copy()
    other.loc[later & frame["y"].notna(), "y"] = 1e6
    other.loc[later, "price"] = -1e6
    again = SeriesDataset(other, 14, 5, split=split, **named)
    for one, two in zip(all_of(made, "train"), all_of(again, "train"), strict=True):
        assert torch.equal(one.nan_to_num(1e9), two.nan_to_num(1e9))


def panel_part(name, start, steps):
    random = np.random.default_rng(start)
    values = random.normal(size=(steps, 2)).cumsum(0)
    values[5::9, 0] = np.nan
    dates = pd.date_range("2024-01-01", periods=120)[start : start + steps]
    return pd.DataFrame(
        {"id": name, "date": dates, "y": values[:, 0], "price": values[:, 1], "kind": name[0], "area": 1.0 * steps}
    )


def test_missing_values_are_carried_forward_in_inputs_and_missing_in_targets():
    values = np.stack([np.arange(100.0), np.ones(100)], 1)
    values[[0, 1, 30, 31], 0] = np.nan
    made = SeriesDataset(values, 10, 5, scale=False)
    assert made.values[:3, 0].tolist() == [0, 0, 2]  # nothing was observed before, and nothing comes from later
    assert made.values[29:33, 0].tolist() == [29, 29, 29, 32]
    _, target = made.get_split_data("train")[18]
    np.testing.assert_equal(target[:, 0].tolist(), [28, 29, np.nan, np.nan, 32])


def test_windows_without_any_target_or_past_are_left_out():
    values = np.arange(200.0)
    values[40:60] = np.nan
    made = SeriesDataset(values, 10, 5)
    starts = set(made.starts("train").tolist())
    assert 30 not in starts and 29 in starts  # targets 40 to 44 are all missing; of 39 to 43 one is there
    assert 45 not in starts  # its past 45 to 54 is missing


def test_windows_never_reach_from_one_series_into_the_next():
    made = SeriesDataset([np.zeros(60), np.ones(60), np.full(60, 2.0)], 10, 5, scale=False)
    for split in ("train", "validation", "test"):
        past, target = all_of(made, split)
        assert (past.amin((1, 2)) == past.amax((1, 2))).all()
        assert (target[:, 0, 0] == past[:, 0, 0]).all()


def test_each_series_is_scaled_by_itself():
    made = SeriesDataset([np.arange(60.0), 1e6 * np.arange(60.0)], 10, 5)
    past, _ = all_of(made, "train")
    assert torch.allclose(past[0], past[len(past) // 2])


def test_static_numbers_go_with_their_series():
    frame = pd.concat([pd.DataFrame({"id": name, "t": range(60), "y": range(60), "area": area})
                       for name, area in (("a", 1.0), ("b", 3.0))])  # fmt: skip
    made = SeriesDataset(frame, 10, 5, target="y", time="t", series="id", static="area")
    static = all_of(made, "train")[2]
    assert static[0].tolist() == [-1.0] and static[-1].tolist() == [1.0]


def test_series_in_a_list_keep_the_dates_of_their_index():
    dated = [
        pd.Series(np.arange(60.0), index=pd.date_range(start, periods=60)) for start in ("2024-01-01", "2024-01-09")
    ]
    made = SeriesDataset(dated, 10, 5)
    assert [str(one.times[0])[:10] for one in made.series] == ["2024-01-01", "2024-01-09"]
    with pytest.raises(BrimError, match="some series in the list have dates in their index and others have not"):
        SeriesDataset([dated[0], pd.Series(np.arange(60.0))], 10, 5)


def test_stride_thins_training_alone():
    plain, thin = SeriesDataset(hourly(), 24, 6), SeriesDataset(hourly(), 24, 6, stride=3)
    assert len(thin.starts("train")) == -(-len(plain.starts("train")) // 3)
    assert len(thin.starts("test")) == len(plain.starts("test"))


def test_short_series_among_others_are_told():
    made = SeriesDataset([np.arange(60), np.arange(12), np.arange(60)], 10, 5)
    assert any("1 of 3 series have no training window of 10 + 5 steps (1)" in note for note in made.notes)


def test_how_values_were_prepared_comes_back_from_json():
    frame = hourly().assign(kind="x")
    made = SeriesDataset(frame, 24, 6, target="a", known="b", static="kind", calendar="auto").preparation
    again = Preparation.from_json(made.as_json())
    assert again.columns == made.columns and again.calendar == made.calendar and again.step == made.step
    assert Preparation.from_json({**made.as_json(), "step": None}).step is None
    assert np.array_equal(again.known, made.known) and np.array_equal(again.static, made.static)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"lookback": 0}, "lookback=0"),
        ({"horizon": 1.5}, "horizon=1.5"),
        ({"season": 0}, "season=0"),
        ({"lookback": 200}, "the longest series has 100 steps; lookback=200 and horizon=5 need 215 or more"),
        ({"horizon": 40}, "take a shorter lookback and horizon"),
        ({"target": "z"}, "has no column 'z'"),
    ],
)
def test_mistakes_are_one_sentence(arguments, said):
    with pytest.raises(BrimError, match=said):
        SeriesDataset(np.arange(100), **{"lookback": 10, "horizon": 5, **arguments})


def test_another_split_is_refused():
    with pytest.raises(BrimError, match="there is no split 'dev'; use one of train, validation, test"):
        SeriesDataset(np.arange(100), 10, 5).get_split_data("dev")


def test_what_it_is_can_be_seen():
    assert repr(SeriesDataset(hourly(), 24, 6)) == (
        "SeriesDataset(1 series, 300 steps (hour), 2 channels; windows of 24 + 6: 181 train, 25 validation, 55 test)"
    )
