import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.pictures import COLOURS, coloured_samples, coloured_shards, picture_bytes, wav_bytes
from torch import nn

import brim
from brim.config import load_config
from brim.config.workload import open_workload
from brim.data import pack
from brim.errors import ConfigError, DataError
from brim.record.plain_yaml import read_yaml

SMALL = ("data.size=16", "model.width=4", "model.depth=1", "train_ds.batch_size=5", "train_ds.num_workers=0",
         "trainer.device=cpu", "trainer.epochs=1", "trainer.threads=1", "trainer.loggers=false")  # fmt: skip


def workload(*settings):
    return open_workload(load_config(None, ["workload=classifier", *SMALL, *settings]))


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_it_trains_what_a_plain_loop_over_the_same_batches_does(tmp_path):
    opened = workload(f"data.train={coloured_shards(tmp_path / 's')}", "trainer.epochs=2", "trainer.seed=3",
                      f"trainer.run_dir={tmp_path / 'run'}")  # fmt: skip
    trainer = opened.build_trainer()
    torch.manual_seed(3)
    model = opened.build_model()
    trainer.fit()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for inputs, labels in brim.Loader(opened.data.train, 5, num_workers=0).batches(3, epoch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    torch.testing.assert_close(weights(trainer.model), weights(model), rtol=1e-5, atol=1e-6)


def test_it_learns_evaluates_and_is_loaded_with_its_classes(tmp_path):
    train, valid = coloured_shards(tmp_path / "t", 60, label="txt"), coloured_shards(tmp_path / "v", 12, label="txt")
    outcome = workload(
        f"data.train={train}", f"data.valid={valid}", f"data.test={valid}", "data.label=txt", "trainer.epochs=6",
        "trainer.lr=0.02", f"trainer.run_dir={tmp_path / 'run'}",
    ).run()  # fmt: skip
    assert outcome.result.metrics["accuracy"] == 1.0
    assert (outcome.judged_by, outcome.columns) == ("test", ("loss", "accuracy"))
    model = brim.load(tmp_path / "run")
    assert model.classes == ("blue", "green", "red")


def test_the_run_knows_what_was_found_out(tmp_path):
    shards = coloured_shards(tmp_path / "s", label="txt")
    workload(f"data.train={shards}", "data.label=txt", f"trainer.run_dir={tmp_path / 'run'}").run()
    kept = read_yaml((tmp_path / "run" / "config.yaml").read_text(), "config")
    assert kept["data"]["classes"] == ["blue", "green", "red"]
    assert kept["train_ds"]["batch_size"] == 5
    said = (tmp_path / "run" / "events.jsonl").read_text()
    assert "24 samples of 3 classes (blue, green, red)" in said
    assert "preset default: batch 8, 8 workers, prefetch 4" in said


def test_folders_packed_by_the_command_are_classes(tmp_path):
    for number, (name, colour) in enumerate(COLOURS.items()):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for copy in range(3):
            (tmp_path / "photos" / name / f"{number}-{copy}.JPG").write_bytes(picture_bytes(colour))
    pack(tmp_path / "photos", tmp_path / "s", labels="folder")
    data = workload(f"data.train={tmp_path / 's'}").data
    assert data.classes.names == ("blue", "green", "red")
    inputs, label = data.train[8]
    assert (inputs.shape, label, data.train.key(8)) == ((3, 16, 16), 2, "red/2-2")


def test_the_order_is_the_same_for_any_number_of_workers(tmp_path):
    shards = coloured_shards(tmp_path / "s", per_shard=24)  # one shard, more workers
    seen = []
    for workers in (0, 2):
        loader = workload(f"data.train={shards}", f"train_ds.num_workers={workers}").build_trainer().train_data
        seen.append(list(loader.batches(0, 1)))
    for (inputs, labels), (others, same) in zip(*seen, strict=True):
        assert torch.equal(inputs, others)
        assert torch.equal(labels, same)


def test_evaluations_read_every_sample_once_in_order_as_their_sections_say(tmp_path):
    shards = coloured_shards(tmp_path / "s", 12)
    settings = (f"data.train={shards}", f"data.valid={shards}", f"data.test={shards}", "train_ds.drop_last=true")
    trainer = workload(*settings, "valid_ds.shuffle=false", "valid_ds.batch_size=7").build_trainer()
    assert [labels.tolist() for _, labels in trainer.eval_data] == [[0, 1, 2] * 2 + [0], [1, 2, 0, 1, 2]]
    assert (trainer.test_data.batch_size, trainer.test_data.shuffle, trainer.test_data.drop_last) == (5, False, False)
    assert trainer.train_data.drop_last


def odd_shards(folder):
    """What real shards are like: other extensions, missing members, a broken picture; one pattern of names."""
    folder.mkdir()
    with tarfile.open(folder / "odd-00.tar", "w") as tar:
        for name, content in {
            "a/1.JPG": picture_bytes(), "a/1.CLS": b"0", "a/2.png": picture_bytes(kind="png", mode="RGBA"),
            "a/2.cls": b"1", "a/3.jpg": picture_bytes()[:200], "a/3.cls": b"1", "a/4.jpg": picture_bytes(),
            "a/5.cls": b"1", "a/6.webp": picture_bytes(kind="webp"), "a/6.cls": b"0", "a/6.txt": b"a caption",
        }.items():  # fmt: skip
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return folder


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (2, r"the field 'jpg' of the sample 'a/3' in .*odd-00.tar cannot be decoded: OSError: .*Truncated"),
        (3, r"the sample 'a/4' in .*odd-00.tar lacks the field cls, its label"),
        (4, r"the sample 'a/5' in .*odd-00.tar has none of the fields jpg, png, webp"),
    ],
)
def test_a_sample_that_cannot_be_used_is_named(tmp_path, number, sentence):
    data = workload(f"data.train={odd_shards(tmp_path / 's')}").data
    with pytest.raises(DataError, match=sentence):
        data.train[number]


@pytest.mark.filterwarnings("ignore:left out")
def test_samples_that_cannot_be_used_are_left_out_and_counted(tmp_path):
    pattern = str(odd_shards(tmp_path / "s") / "odd-{00..00}.tar")
    opened = workload(f"data.train={pattern}", "data.on_damage=skip", "train_ds.batch_size=6",
                      f"trainer.run_dir={tmp_path / 'run'}")  # fmt: skip
    opened.run()
    assert "3 damaged samples were left out in this pass" in (tmp_path / "run" / "events.jsonl").read_text()


@pytest.mark.filterwarnings("ignore:left out")
def test_samples_with_an_empty_or_a_broken_label_are_left_out_and_no_class(tmp_path):
    labels = [b'{"of": "a"}', b'{"of": "b"}', b'{"of": ""}', b'{"of": null}', b'{"by": "me"}', b"{", b'{"of": "b"}']
    (tmp_path / "s").mkdir()
    with tarfile.open(tmp_path / "s" / "s.tar", "w") as tar:
        for number, label in enumerate(labels):
            for ending, content in (("jpg", picture_bytes()), ("json", label)):
                member = tarfile.TarInfo(f"{number}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    settings = [f"data.train={tmp_path / 's'}", "data.label=json", "data.label_key=of"]
    data = workload(*settings, "data.on_damage=skip").data
    assert data.classes.names == ("a", "b")
    labels = torch.cat([labels for _, labels in brim.Loader(data.train, 10, num_workers=0).batches(0, 0)])
    assert sorted(labels.tolist()) == [0, 1, 1]
    with pytest.raises(DataError, match=r"the sample '4' in .* cannot be decoded: ValueError: it has no 'of'"):
        assert workload(*settings).data


def test_a_label_that_training_does_not_have_is_an_error_even_where_damage_is_skipped(tmp_path):
    train = coloured_shards(tmp_path / "t", label="txt")
    pack([{"jpg": picture_bytes(), "txt": "violet"}], tmp_path / "v")
    data = workload(f"data.train={train}", f"data.valid={tmp_path / 'v'}", "data.label=txt", "data.on_damage=skip").data
    with pytest.raises(DataError, match="sample '000000000': the label 'violet' is none of the 3 classes"):
        data.valid.__getitems__([0])


def test_sounds_are_classified_by_what_is_in_them(tmp_path):
    tones = [np.sin(np.arange(1600) * pitch) for pitch in (0.05, 1.2)]
    pack(({"wav": wav_bytes(tones[n % 2] * (0.5 + n / 80)), "cls": n % 2} for n in range(40)), tmp_path / "s")
    opened = workload(
        f"data.train={tmp_path / 's'}", f"data.valid={tmp_path / 's'}", "data.seconds=0.1", "data.augment=[crop]",
        "model.bands=16", "trainer.lr=0.01", "trainer.epochs=3", f"trainer.run_dir={tmp_path / 'run'}",
    )  # fmt: skip
    assert (opened.data.spec.rate, opened.data.spec.shape) == (8000, (800,))
    assert opened.run().result.metrics["accuracy"] == 1.0
    assert brim.load(tmp_path / "run").spec.rate == 8000


def test_arrays_are_classified_as_they_are(tmp_path):
    pack([(torch.full((8, 8), float(n % 2)), n % 2) for n in range(20)], tmp_path / "s")
    data = workload(f"data.train={tmp_path / 's'}").data
    assert (data.spec.kind, data.spec.shape, data.spec.dtype) == ("array", (1, 8, 8), torch.float32)
    workload(f"data.train={tmp_path / 's'}", f"trainer.run_dir={tmp_path / 'run'}").run()
    assert brim.load(tmp_path / "run").spec == data.spec


def test_a_plan_can_be_made_of_it(tmp_path):
    job = workload(f"data.train={coloured_shards(tmp_path / 's')}").plan_job()
    (inputs, labels), _ = job["batch"](7)[0][0], None
    assert (inputs.shape, labels.shape, job["batch_size"]) == ((7, 3, 16, 16), (7,), 5)


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ([], ConfigError, r"data.train=... names the shards to train on"),
        (["data.train=nowhere"], DataError, "no shard is found at nowhere"),
        (["data.train=s", "data.classes=2"], DataError, "the label '2' is none of the 2 classes"),
    ],
)
def test_mistakes_are_told_in_a_sentence(tmp_path, monkeypatch, settings, error, sentence):
    monkeypatch.chdir(tmp_path)
    pack(coloured_samples(6), "s")
    with pytest.raises(error, match=sentence):
        workload(*settings).run()


def test_one_class_is_not_enough(tmp_path):
    pack([{"jpg": picture_bytes(), "cls": 3}] * 2, tmp_path / "s")
    with pytest.raises(ConfigError, match="all samples have the label '3'"):
        workload(f"data.train={tmp_path / 's'}").read()


REAL = Path(os.environ.get("BRIM_TEST_DATA", ""), "tar-shards", "cc12m-train-0000.tar")


@pytest.mark.skipif(not REAL.is_file(), reason="BRIM_TEST_DATA does not name a folder with tar-shards")
def test_a_real_shard_of_photographs_with_labels_in_json_is_read_whole():
    data = workload(f"data.train={REAL}", "data.label=json", "data.label_key=height").data
    assert (len(data.train), data.spec.kind) == (32, "picture")
    read = data.train.__getitems__(list(range(32)))
    assert {int(data.classes.names[label]) for _, label in read} >= {512}
    # Whole pictures: of random crops this small, two may well have the same mean.
    assert len({inputs.numpy().tobytes() for inputs, _ in read}) == 32


@pytest.mark.gpu
def test_on_a_gpu_it_trains_what_the_cpu_does(tmp_path):
    shards = coloured_shards(tmp_path / "s", 60)
    trained = []
    for device in ("cpu", "cuda"):
        settings = (f"data.train={shards}", "trainer.epochs=2", f"trainer.run_dir={tmp_path / device}")
        trainer = workload(*settings, "train_ds.num_workers=1").build_trainer(device=device)
        trainer.fit()
        trained.append(weights(trainer.model).cpu())
    torch.testing.assert_close(*trained, rtol=1e-3, atol=1e-4)


def test_a_run_that_nothing_judges_says_so_and_not_that_metrics_were_asked_for(tmp_path):
    shards = coloured_shards(tmp_path / "s", label="txt")
    workload(f"data.train={shards}", "data.label=txt", f"trainer.run_dir={tmp_path / 'run'}").run()
    said = (tmp_path / "run" / "events.jsonl").read_text()
    assert "nothing says how good it becomes: data.valid and data.test are not named" in said
    assert "metrics= are computed" not in said
