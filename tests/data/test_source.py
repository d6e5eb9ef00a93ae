import random

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from brim.data import source
from brim.data.columns.column_source import ColumnSource
from brim.data.reading import dataset_probe, resident, workers
from brim.data.reading.batched import BatchedSource
from brim.data.reading.samples import SampleSource
from brim.data.reading.shared_room import PLENTY
from brim.data.reading.workers import BatchCost, Budget, WorkerChoice
from brim.data.source import FeedChoice, FeedRequest, choose_source, dataset_length
from brim.data.times import FeedTimes
from brim.errors import DataError

X = torch.arange(40.0)


class OneByOne(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return X[int(index)]


class ManyAtOnce(OneByOne):
    def __getitem__(self, index):
        return X[index]


class Augmented(OneByOne):
    def __getitem__(self, index):
        return X[index] * random.random()


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIM_CACHE", str(tmp_path))


def chosen(data, report=lambda sentence: None, **asked):
    return choose_source(data, FeedRequest(batch_size=4, **asked), FeedTimes(), report)


@pytest.mark.parametrize("feed", ["auto", "resident", "batched"])
@pytest.mark.parametrize("data", [X, (X, X), {"x": X}, TensorDataset(X), X.numpy()], ids=lambda data: str(type(data)))
def test_columns_are_read_as_columns(data, feed):
    assert isinstance(chosen(data, feed=feed)[0], ColumnSource)


class ByGetitems(OneByOne):
    """torch's own way to be asked for many."""

    def __getitems__(self, indices):
        return [X[index] for index in indices]


def gain(monkeypatch, times):
    """As if reading in batches had been measured to be so many times faster."""
    real = dataset_probe.batched_access
    monkeypatch.setattr(dataset_probe, "LONGEST_BATCHED_TRIAL", float("inf"))
    monkeypatch.setattr(dataset_probe, "batched_access", lambda *given: (found := real(*given)) and (found[0], times))


def test_a_data_set_that_takes_lists_is_read_one_by_one_and_one_line_says_how_to_ask_for_more(monkeypatch):
    gain(monkeypatch, 7.0)
    said = []
    found, choice = chosen(ManyAtOnce(), said.append)
    assert isinstance(found, SampleSource)
    assert choice.path == "samples one by one"
    (line,) = said
    assert line.startswith("ManyAtOnce could be asked for many samples at once, 7x as fast")
    assert 'feed="batched"' in line


@pytest.mark.parametrize("data", [OneByOne(), Augmented(), ByGetitems()], ids=lambda data: type(data).__name__)
def test_nothing_is_said_where_nothing_would_be_gained(monkeypatch, data):
    gain(monkeypatch, 7.0)
    said = []
    chosen(data, said.append)
    assert said == []


def test_batches_that_would_be_hardly_faster_are_not_worth_a_line(monkeypatch):
    gain(monkeypatch, 1.2)
    said = []
    chosen(ManyAtOnce(), said.append)
    assert said == []


def test_by_name_a_data_set_is_read_in_batches():
    found, choice = chosen(ManyAtOnce(), feed="batched")
    assert isinstance(found, BatchedSource)
    assert choice.sentence().startswith("data: batched access in this process, because it was requested")


def test_torchs_own_way_to_be_asked_for_many_is_taken():
    found, choice = chosen(ByGetitems())
    assert isinstance(found, SampleSource)
    assert choice.path == "batches by its __getitems__, in this process"


@pytest.mark.parametrize("data", [OneByOne(), Augmented()])
def test_batched_access_that_is_impossible_is_refused_when_asked_for(data):
    assert isinstance(chosen(data)[0], SampleSource)
    with pytest.raises(DataError, match=f"feed='batched' is not possible: {type(data).__name__}"):
        chosen(data, feed="batched")


def test_batched_access_and_a_collate_function_contradict_each_other():
    assert isinstance(chosen(ManyAtOnce(), collate=sum)[0], SampleSource)
    with pytest.raises(DataError, match="collate_fn contradict"):
        chosen(ManyAtOnce(), collate=sum, feed="batched")


def test_samples_one_by_one_when_asked_for():
    found, choice = chosen(ManyAtOnce(), feed="samples")
    assert isinstance(found, SampleSource)
    assert found.settings.count == 0
    assert choice == FeedChoice("samples one by one", "it was requested")


@pytest.mark.parametrize("count", [1, 2])
def test_as_many_workers_as_asked_for(count):
    found, choice = chosen(OneByOne(), workers=count, prefetch=3)
    assert (found.settings.count, found.settings.prefetch) == (count, 3)
    assert (choice.workers, choice.prefetch) == (count, 3)
    assert choice.path == ("1 worker" if count == 1 else "2 workers")


def test_a_short_epoch_is_not_worth_measuring():
    found, choice = chosen(OneByOne())
    assert found.settings.count == 0
    assert "an epoch is read in about" in choice.reason


def test_samples_that_fail_are_left_to_reading(monkeypatch):
    class Failing(OneByOne):
        def __getitem__(self, index):
            raise OSError("gone")

    for asked in ({}, {"workers": 1}, {"feed": "workers"}):
        assert isinstance(chosen(Failing(), **asked)[0], SampleSource)


def test_the_whole_is_read_once_where_it_is_to_be_resident():
    said = []
    found, choice = chosen(OneByOne(), said.append, feed="resident")
    assert isinstance(found, ColumnSource)
    assert found.columns.tolist() == X.tolist()
    assert said == ["reading the 40 samples of OneByOne into memory once"]
    assert "read into memory once" in choice.reason


class LikeHF:
    """What an HF data set without a format does: a dict for a number, a dict of lists for a list."""

    __module__ = "datasets.arrow_dataset"
    format = {"type": None}  # noqa: RUF012

    def __init__(self, kept="x"):
        self.kept = kept

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if isinstance(index, list):
            return {self.kept: [self[at][self.kept] for at in index]}
        if not isinstance(index, int):
            raise TypeError("wrong key type")
        return {self.kept: f"text {index}" if self.kept == "text" else index * 2}


def test_a_small_hf_data_set_is_read_into_memory():
    found, _ = chosen(LikeHF())
    assert isinstance(found, ColumnSource)
    assert found.columns["x"].tolist() == [2 * at for at in range(40)]


def test_a_large_hf_data_set_is_read_in_batches(monkeypatch):
    monkeypatch.setattr(resident, "available_memory", lambda: 8 * 40 * 8)
    found, choice = chosen(LikeHF())
    assert isinstance(found, BatchedSource)
    assert choice.reason == "its class promises that"


def test_an_hf_data_set_of_texts_is_read_in_batches():
    assert isinstance(chosen(LikeHF("text"))[0], BatchedSource)


class Transformed(LikeHF):
    """One with set_transform, and as HF data sets have it, torch's own way to be asked for many."""

    __module__ = "datasets.arrow_dataset"
    format = {"type": "custom"}  # noqa: RUF012

    def __getitems__(self, indices):
        return [self[index] for index in indices]


def test_an_hf_data_set_with_a_transform_is_asked_batch_by_batch_as_torch_does():
    found, choice = chosen(Transformed())
    assert isinstance(found, SampleSource)
    assert choice.path == "batches by its __getitems__, in this process"


class OfAProjectsOwnDatasets(ManyAtOnce):
    __module__ = "datasets.pictures"


def test_a_package_called_datasets_is_not_hugging_faces():
    assert isinstance(chosen(OfAProjectsOwnDatasets())[0], SampleSource)


class Lazy(OneByOne):
    """Opens its file when it is first asked."""

    handle = None

    def __getitem__(self, index):
        self.handle = "open"
        return super().__getitem__(index)


class LazyManyAtOnce(Lazy):
    def __getitem__(self, index):
        self.handle = "open"
        return X[index]


@pytest.mark.parametrize(
    "data",
    [
        Lazy(),
        LazyManyAtOnce(),
    ],
    ids=["one by one", "many at once"],
)
@pytest.mark.parametrize("asked", [{}, {"workers": 1}], ids=str)
def test_choosing_opens_no_files_in_the_data_set(data, asked):
    data.handle = None
    chosen(data, **asked)
    assert data.handle is None


def test_more_than_shared_memory_has_is_refused(monkeypatch):
    monkeypatch.setattr(workers, "free_shared_memory", lambda: 20)
    with pytest.raises(DataError, match=r"1 workers with 2 batches .* of /dev/shm"):
        chosen(OneByOne(), workers=1)


def test_workers_by_number_are_not_tried_beforehand_where_shared_memory_is_large(monkeypatch):
    monkeypatch.setattr(workers, "free_shared_memory", lambda: PLENTY)
    monkeypatch.setattr(dataset_probe, "dry_run", lambda *_, **__: pytest.fail("it was tried"))
    assert chosen(OneByOne(), workers=2)[0].settings.count == 2
    monkeypatch.setattr(workers, "free_shared_memory", lambda: None)
    assert chosen(OneByOne(), workers=2)[0].settings.count == 2


@pytest.fixture
def slow(monkeypatch):
    """A data set whose epoch is worth workers, on a machine where three of them are best; what was measured by them."""
    measured = []

    def rate(count, prefetch):
        measured.append(count)
        return 10.0 * min(count, 3)

    monkeypatch.setattr(source, "WORTH_WORKERS", 0.0)
    monkeypatch.setattr(source, "batch_cost", lambda *_: (BatchCost(0.1, 0.1, 1_000_000, 1), 2))
    budget = lambda ranks, computes_here: Budget((4 if computes_here else 8) // ranks)  # noqa: E731
    monkeypatch.setattr(source, "machine_budget", budget)
    monkeypatch.setattr(source, "rate_by_workers", lambda *_: rate)
    return measured


def test_the_number_of_workers_is_measured_once_and_remembered(slow):
    said = []
    _, choice = chosen(OneByOne(), said.append)
    assert choice.workers == 3
    assert "measuring how many workers help" in said[0]
    times = len(slow)
    assert times > 0
    assert chosen(OneByOne(), said.append)[1] == choice
    assert len(slow) == times
    assert len(said) == 1


class Curriculum(OneByOne):
    level = 0

    def __getitem__(self, index):
        self.level += 1
        return X[int(index)] * self.level


class OwnGenerator(OneByOne):
    def __init__(self):
        self.rng = random.Random(0)

    def __getitem__(self, index):
        return X[int(index)] * self.rng.random()


class AsksForItsWorker(OneByOne):
    def __getitem__(self, index):
        return X[int(index)] if torch.utils.data.get_worker_info() is None else -X[int(index)]


class ToldTheEpoch(OneByOne):
    def set_epoch(self, epoch):
        self.epoch = epoch


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (Curriculum(), "it changes while it is read (level)"),
        (OwnGenerator(), "it changes while it is read (rng)"),
        (torch.utils.data.Subset(Curriculum(), range(40)), "it changes while it is read (dataset)"),
        (ToldTheEpoch(), "it is told the epoch (set_epoch)"),
        (AsksForItsWorker(), "it asks which worker it is in"),
    ],
    ids=["a counter", "a generator", "within a subset", "set_epoch", "get_worker_info"],
)
def test_a_data_set_that_changes_is_not_moved_to_workers_by_brim(slow, data, why):
    found, choice = chosen(data)
    assert found.settings.count == 0
    assert choice.reason.startswith(why)
    assert slow == []
    assert chosen(data, workers=2)[0].settings.count == 2
    said = []
    assert chosen(data, said.append, feed="workers")[0].settings.count > 0
    assert "each worker process does so for itself" in said[0]


def test_workers_that_brim_chose_are_watched_and_those_asked_for_are_the_users(slow):
    assert not chosen(OneByOne())[0].settings.are_asked_for
    assert chosen(OneByOne(), workers=2)[0].settings.are_asked_for
    assert chosen(OneByOne(), feed="workers")[0].settings.are_asked_for


class Tracing(OneByOne):
    """Keeps lists, counts, prints and draws."""

    reads = 0

    def __init__(self):
        self.seen, self.rng = [], random.Random(0)

    def __getitem__(self, index):
        Tracing.reads += 1
        self.seen.append(index)
        self.rng.random(), random.random(), torch.rand(1)
        print("read", index)
        return X[index]


@pytest.mark.parametrize("asked", [{}, {"workers": 1}, {"workers": 0}, {"feed": "workers"}], ids=str)
def test_choosing_leaves_no_trace(slow, capfd, asked):
    data, before = Tracing(), (torch.get_rng_state().tolist(), random.getstate())
    chosen(data, **asked)
    assert (data.seen, Tracing.reads, data.rng.getstate()) == ([], 0, random.Random(0).getstate())
    assert (torch.get_rng_state().tolist(), random.getstate()) == before
    assert capfd.readouterr() == ("", "")


def test_a_data_set_that_writes_files_is_left_in_this_process(slow, tmp_path):
    class Noting(OneByOne):
        def __getitem__(self, index):
            (tmp_path / f"sample {index}").write_text("read")
            return X[index]

    assert "writes files" in chosen(Noting())[1].reason
    with pytest.raises(DataError, match="feed='batched' cannot be checked: Noting writes files"):
        chosen(Noting(), feed="batched")
    assert not list(tmp_path.glob("sample*"))


def test_training_on_the_cpu_is_another_machine(slow):
    chosen(OneByOne())
    chosen(OneByOne(), computes_here=True)
    assert max(slow) == 8
    assert slow.count(4) > 0


def test_a_prefetch_factor_of_the_users_own_is_kept(slow):
    assert chosen(OneByOne(), prefetch=7)[1].prefetch == 7
    assert chosen(OneByOne())[1].prefetch == 2


def test_workers_that_are_asked_for_come_even_where_they_do_not_pay(slow, monkeypatch):
    monkeypatch.setattr(source, "rate_by_workers", lambda *_: lambda count, prefetch: 0.0)
    assert chosen(OneByOne(), feed="workers")[1].workers == 1
    assert chosen(OneByOne())[1].workers == 0


def test_ranks_on_one_machine_share_its_cores_and_each_is_measured_by_its_share_of_a_batch(slow, monkeypatch):
    sizes = []
    monkeypatch.setattr(
        source, "batch_cost", lambda reader, samples, size: sizes.append(size) or (BatchCost(0.1, 0.1, 1000, 1), 1)
    )
    _, choice = chosen(OneByOne(), ranks=4, ranks_here=4)
    assert (choice.workers, sizes, max(slow)) == (2, [1], 2)


def test_what_is_remembered_does_not_exceed_what_the_machine_has_left(slow, monkeypatch):
    assert chosen(OneByOne())[1].workers == 3
    monkeypatch.setattr(source, "machine_budget", lambda *_: Budget(8, shared_memory=4_000_000))
    assert chosen(OneByOne())[1].workers <= 1


def test_a_data_set_that_cannot_be_pickled_is_tried_in_another_process_all_the_same(monkeypatch):
    class Many(OneByOne):
        def __init__(self):
            self.transform = lambda rows: rows

        def __getitem__(self, index):
            return self.transform(X[index])

    tried_here, data = [], Many()
    access = source.batched_access
    monkeypatch.setattr(source, "batched_access", lambda *about: tried_here.append(1) or access(*about))
    made, _ = chosen(data, feed="batched")
    assert isinstance(made, BatchedSource)
    assert made.access.dataset is data
    assert not tried_here


@pytest.mark.parametrize("data", [7, {"a": 1}, iter([1])])
def test_what_has_no_length_is_refused_by_its_type(data):
    with pytest.raises(DataError, match=f"^{type(data).__name__} is neither"):
        dataset_length(data)


def test_an_empty_data_set_is_refused():
    with pytest.raises(DataError, match="the data set list is empty"):
        dataset_length([])


def test_a_choice_is_a_sentence():
    choice = WorkerChoice(2, 2, "it was so", {})
    assert FeedChoice("2 workers", choice.reason).sentence() == "data: 2 workers, because it was so"
