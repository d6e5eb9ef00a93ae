import hashlib
import io
import json
import pickle

import pytest
import torch
from safetensors.torch import save
from torch import nn

import brim
from brim.engine.checkpoints.checkpoint import Checkpoints
from brim.engine.checkpoints.weights import load_weights, save_weights
from brim.engine.checkpoints.whole_folder import CHECKSUMS, damage
from brim.engine.components.precision import Precision
from brim.engine.run_state.progress import Progress
from brim.engine.run_state.training_state import TrainingState
from brim.errors import RunFolderError
from brim.record import RunFolder


def make_state() -> TrainingState:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    return TrainingState(model, optimizer, None, Precision("32", torch.device("cpu")), Progress())


@pytest.fixture
def checkpoints(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    checkpoints.save(make_state())
    return checkpoints


def put(checkpoints, name, content):
    """Another file into the only checkpoint, with a checksum to match: who can write the one can write the other."""
    folder = checkpoints.all()[0]
    (folder / name).write_bytes(content)
    sums = json.loads((folder / CHECKSUMS).read_text())
    (folder / CHECKSUMS).write_text(json.dumps({**sums, name: hashlib.sha256(content).hexdigest()}))


def resume(checkpoints):
    found = checkpoints.newest_whole(lambda sentence: None)
    assert found is not None
    state = make_state()
    checkpoints.load(found, state)
    return state


def saved_by_torch(value, new=True):
    content = io.BytesIO()
    torch.save(value, content, _use_new_zipfile_serialization=new)
    return content.getvalue()


PICKLES = {
    "as torch saves": saved_by_torch,
    "as torch once saved": lambda value: saved_by_torch(value, new=False),
    "as pickle does": pickle.dumps,
}
PLACES = {
    "alone": lambda trap: trap,
    "as a weight": lambda trap: {"weight": trap, "bias": torch.zeros(2)},
    "as a name": lambda trap: {"weight": torch.zeros(2, 3), "bias": torch.zeros(2), "more": [(trap,)]},
    "in state_dict": lambda trap: {"state_dict": {"weight": trap}},
}


@pytest.mark.parametrize("pickled", PICKLES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".safetensors"])
def test_code_in_weights_does_not_run(tmp_path, trap, pickled, place, suffix):
    content = PICKLES[pickled](PLACES[place](trap))
    if pickled != "as pickle does":
        torch.load(io.BytesIO(content), weights_only=False)
    else:
        pickle.loads(content)
    assert trap.has_sprung  # the payload is alive
    (tmp_path / f"model{suffix}").write_bytes(content)
    with pytest.raises(RunFolderError, match="cannot load weights"):
        load_weights(nn.Linear(3, 2), tmp_path / f"model{suffix}")
    assert not trap.has_sprung


def test_refusing_code_recommends_nothing_that_would_run_it(tmp_path, trap):
    torch.save(trap, tmp_path / "model.pt")
    with pytest.raises(RunFolderError) as refused:
        load_weights(nn.Linear(3, 2), tmp_path / "model.pt")
    assert "holds objects that can run code, which brim does not load" in str(refused.value)
    assert "weights_only" not in str(refused.value)


@pytest.mark.parametrize("pickled", PICKLES)
def test_code_in_a_training_state_does_not_run(checkpoints, trap, pickled):
    state = {**make_state().tensors(), "scheduler": trap}
    content = PICKLES[pickled](state)
    pickle.loads(pickle.dumps(trap))
    assert trap.has_sprung
    put(checkpoints, "training.pt", content)
    with pytest.raises(RunFolderError, match="cannot be used"):
        resume(checkpoints)
    assert not trap.has_sprung


def test_code_in_the_weights_of_a_run_folder_does_not_run(tmp_path, trap):
    folder = RunFolder.create(tmp_path / "run")
    step = folder.checkpoints / "step-000000001"
    step.mkdir()
    torch.save(trap, step / "model.safetensors")
    with pytest.raises(RunFolderError):
        brim.load(folder.path, model=nn.Linear(3, 2))
    assert not trap.has_sprung


def test_checksums_cannot_name_a_file_elsewhere(checkpoints, tmp_path):
    (tmp_path / "elsewhere").write_text("secret")
    right = hashlib.sha256(b"secret").hexdigest()
    folder = checkpoints.all()[0]
    for name in ("../../elsewhere", str(tmp_path / "elsewhere")):
        (folder / CHECKSUMS).write_text(json.dumps({name: right}))
        assert damage(folder) == "elsewhere is missing"  # looked for here alone
    (folder / "elsewhere").write_text("secret")
    assert damage(folder) is None  # the sum itself is right


def test_a_file_that_never_ends_is_not_read(checkpoints):
    folder = checkpoints.all()[0]
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("/dev/zero")
    assert damage(folder) == "model.safetensors is missing"


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": ' * 100_000, '{"a": NaN}', '{"\\u0000": ""}', '{"": ""}', "\x00"]
)
def test_checksums_of_any_shape_are_damage_and_nothing_else(checkpoints, text):
    folder = checkpoints.all()[0]
    (folder / CHECKSUMS).write_text(text)
    assert isinstance(damage(folder), str)


def with_header(header, size=None, data=bytes(32)):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


def tensor(dtype="F32", shape=(2, 3), offsets=(0, 24)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


BIAS = tensor(shape=(2,), offsets=(24, 32))
LIES = {
    "a header longer than the file": with_header({"weight": tensor(), "bias": BIAS}, size=10_000),
    "a header longer than memory": with_header({"weight": tensor(), "bias": BIAS}, size=2**63),
    "data beyond the end": with_header({"weight": tensor(offsets=(8, 40)), "bias": BIAS}),
    "data before the start": with_header({"weight": tensor(offsets=(-8, 16)), "bias": BIAS}),
    "data that ends before it starts": with_header({"weight": tensor(offsets=(24, 0)), "bias": BIAS}),
    "two tensors in one place": with_header({"weight": tensor(), "bias": tensor(shape=(2,), offsets=(0, 8))}),
    "more numbers than bytes": with_header({"weight": tensor(shape=(2**40, 2**40)), "bias": BIAS}),
    "numbers that wrap around": with_header({"weight": tensor(shape=(2**63, 2)), "bias": BIAS}),
    "an unknown type": with_header({"weight": tensor(dtype="object"), "bias": BIAS}),
    "a shape of texts": with_header({"weight": tensor(shape=("a", "b")), "bias": BIAS}),
    "deep nesting": with_header(b"[" * 100_000),
    "no tensors": with_header({}, data=b""),
    "not UTF-8": with_header(b"\xff\xfe"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies_is_refused(tmp_path, lie):
    (tmp_path / "model.safetensors").write_bytes(LIES[lie])
    with pytest.raises(RunFolderError):
        load_weights(nn.Linear(3, 2), tmp_path / "model.safetensors")


def test_a_header_that_tells_the_truth_is_read(tmp_path):
    """The refusals above are not of the way in which they are written."""
    (tmp_path / "model.safetensors").write_bytes(with_header({"weight": tensor(), "bias": BIAS}))
    model = nn.Linear(3, 2)
    load_weights(model, tmp_path / "model.safetensors")
    assert not model.weight.any()


@pytest.mark.parametrize("value", [1, "text", None, [1.0], {"a": 1}, torch.Size([2, 3])])
def test_weights_that_are_no_tensors_are_refused(tmp_path, value):
    torch.save({"weight": value, "bias": torch.zeros(2)}, tmp_path / "model.pt")
    with pytest.raises(RunFolderError, match="it holds no weights by name"):
        load_weights(nn.Linear(3, 2), tmp_path / "model.pt")


def test_a_tensor_that_claims_more_than_its_file_holds_is_refused(tmp_path):
    save_weights(nn.Linear(3, 2), tmp_path / "model.pt")
    content = (tmp_path / "model.pt").read_bytes()
    shape, larger = b"K\x02K\x03\x86", b"K\x02K\xff\x86"  # pickled: (2, 3), and (2, 255)
    assert content.count(shape) == 1
    (tmp_path / "model.pt").write_bytes(content.replace(shape, larger))
    with pytest.raises(RunFolderError):
        load_weights(nn.Linear(255, 2), tmp_path / "model.pt")


NO_PROGRESS = {
    "step": [-1, 1.5, "3", None, True, 10**30, [], float("nan")],
    "epoch": [-1, "0", None, 10**30],
    "position": [-1, -(10**18), 0.5, None, {}, 10**30],
    "best": ["0.5", [], True],
    "best_epoch": [-1, None, "1"],
    "threads": [0, -1, 10**6, "1", 1.0],
    "micro_batch": [0, -8, "8", float("inf")],
    "metrics": [None, [], "loss", {"loss": "0.5"}, {"loss": None}, {"loss": [0.5]}],
    "best_metrics": [3, {"loss": {}}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in NO_PROGRESS.items() for value in values])
def test_progress_that_no_run_comes_to_is_refused(checkpoints, name, value):
    put(checkpoints, "progress.json", json.dumps({**Progress(3, 1, 4).to_json(), name: value}).encode())
    with pytest.raises(RunFolderError, match="cannot be used"):
        resume(checkpoints)


def test_progress_that_a_run_comes_to_is_read(checkpoints):
    told = Progress(3, 1, 4, float("nan"), 2, 1, 2, 8, {"loss": float("nan")}, {"loss": 1})
    put(checkpoints, "progress.json", json.dumps(told.to_json()).encode())
    assert str(resume(checkpoints).progress) == str(told)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"\0", b"null", b'{"unknown": 1}'])
def test_progress_that_is_none_is_refused(checkpoints, content):
    put(checkpoints, "progress.json", content)
    with pytest.raises(RunFolderError, match="cannot be used"):
        resume(checkpoints)


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": None}, {"optimizer": {}}, {"optimizer": {"state": [], "param_groups": [1]}}, {"generators": {}},
        {"generators": {"torch": torch.zeros(3)}}, {"generators": {"torch": 1}}, {"optimizer_class": ["AdamW"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_training_state_of_another_shape_is_refused(checkpoints, change):
    put(checkpoints, "training.pt", saved_by_torch({**make_state().tensors(), **change}))
    with pytest.raises(RunFolderError, match="cannot be used"):
        resume(checkpoints)


def test_generators_beyond_their_words_are_refused(checkpoints):
    tensors = make_state().tensors()
    tensors["generators"]["numpy"][1][0] = 2**40
    put(checkpoints, "training.pt", saved_by_torch(tensors))
    with pytest.raises(RunFolderError, match="cannot be used"):
        resume(checkpoints)


NAMES = [f"../{'0' * 64}.safetensors", "/etc/passwd", "model.safetensors", "..", "0" * 64]


@pytest.mark.parametrize("name", NAMES)
def test_weights_cannot_refer_to_a_file_elsewhere(checkpoints, name):
    (checkpoints.folder / "frozen").mkdir()
    metadata = {"brim.frozen": json.dumps({"weight": [name, "weight", "torch.float32 (2, 3) 00"]})}
    put(checkpoints, "model.safetensors", save({"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}, metadata))
    with pytest.raises(RunFolderError, match="what it says about frozen weights is not brim's"):
        resume(checkpoints)
    checkpoints.frozen.files.prune()  # which cannot ask it, and does nothing


@pytest.mark.parametrize("value", ["[", "[" * 100_000, "null", '{"weight": 1}', '{"weight": [1, 2, 3]}', '["weight"]'])
def test_references_of_any_shape_are_refused(checkpoints, value):
    put(checkpoints, "model.safetensors", save({"bias": torch.zeros(2)}, {"brim.frozen": value}))
    with pytest.raises(RunFolderError, match="cannot load weights"):
        resume(checkpoints)


def test_frozen_weights_that_never_end_or_lie_about_their_sum_are_damage(checkpoints):
    name = "0" * 64 + ".safetensors"
    metadata = {"brim.frozen": json.dumps({"weight": [name, "weight", "torch.float32 (2, 3) 00"]})}
    put(checkpoints, "model.safetensors", save({"bias": torch.zeros(2)}, metadata))
    shared = checkpoints.folder / "frozen" / name
    shared.parent.mkdir()
    told = []
    shared.symlink_to("/dev/zero")
    assert checkpoints.newest_whole(told.append) is None and "are missing" in told.pop()
    shared.unlink()
    shared.write_bytes(save({"weight": torch.zeros(2, 3)}))
    assert checkpoints.newest_whole(told.append) is None and "are not what was written" in told.pop()
