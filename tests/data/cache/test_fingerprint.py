import copy
import copyreg
import functools
import os
import re
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from brim.data.cache.fingerprint import fingerprint, structure_fingerprint
from brim.errors import DataError

PROGRAM = """
import enum, functools, re, sys, torch
import numpy as np
from torch.utils.data import Dataset
from brim.data.cache.fingerprint import fingerprint

SCALE = {"a": 1.5, "names": {"x", "y", "zebra", "q"}}

class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"

def helper(x, words=frozenset(("one", "two", "three", "four"))):
    return x in words or x in {"five", "six", "seven"}

class Base:
    def __call__(self, x):
        return helper(x) and super().__repr__()

class Clean(Base):
    mode = Mode.FAST
    def __init__(self):
        self.pattern, self.stop, self.me = re.compile("a+"), {"a", "b", "c", "d"}, self
        self.net = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(self.net.weight), torch.nn.init.ones_(self.net.bias)
    @property
    def twice(self):
        return lambda x: x * 2 * SCALE["a"]

class Data(Dataset):
    def __init__(self):
        self.x, self.kinds, self.array = torch.arange(4), {"u", "v", "w"}, np.arange(3.0)

def outer():
    import json
    limit = {1, "two", 3.0}
    return lambda x: json.dumps([helper(x), sorted(map(str, limit)), np.sqrt(2), torch.relu, Clean])

class Compose:
    def __init__(self, *steps):
        self.steps = list(steps)

steps = Compose(Clean(), functools.partial(helper, words={"p", "q", "r"}), outer(), Clean().__call__, abs, torch.relu)
print(fingerprint(steps, Data()))
"""


@pytest.mark.slow
def test_the_hash_is_the_same_in_every_process_whatever_the_hash_seed():
    hashes = set()
    for seed in ("0", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        hashes.add(done.stdout)
    assert len(hashes) == 1


def test_the_hash_is_the_same_again_in_this_process():
    names = {"__name__": "__main__"}
    exec(PROGRAM.replace("print(fingerprint", "found = (fingerprint"), names)
    again = fingerprint(names["steps"], names["Data"]())
    assert names["found"] == again


class Own:
    def __call__(self, x):
        return x


def test_copying_or_using_an_object_does_not_change_its_hash():
    transform = Own()
    before = fingerprint(Own, transform)  # the class before its object: reducing that leaves a trace in the class
    copy.copy(transform)(1)
    assert fingerprint(Own, transform) == before


def transform_of(source):
    """The function ``transform`` that a text defines, as if in a module of the user's."""
    names = {"__name__": "module_of_a_user"}
    exec(source, names)
    return names["transform"]


PLAIN = """
import functools
FACTOR = 2
TABLE = {"a": [1, 2]}
def deep(x):
    return x - 1
def helper(x):
    return deep(x) * FACTOR
def make(bias):
    return lambda x: x + bias
add = make(3)
class Step:
    size = 4
    def __init__(self, width):
        self.width = width
    def __call__(self, x, scale=1.0):
        return add(helper(x)) * self.width * self.size * TABLE["a"][0] * scale
class Narrow(Step):
    pass
step = Narrow(5)
bound = step.__call__
part = functools.partial(helper, 6)
def transform(x, *, limit=7):
    def inner(x):
        return [step(x), bound(x), part, x < limit, 8]
    return inner(x)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x < limit, 8", "x < limit, 9"),
        ("x < limit", "x > limit"),
        ("limit=7", "limit=70"),
        ("FACTOR = 2", "FACTOR = 2.0"),
        ("[1, 2]", "[1, 3]"),
        ("x - 1", "x - 2"),
        ("make(3)", "make(30)"),
        ("x + bias", "x - bias"),
        ("size = 4", "size = 40"),
        ("Narrow(5)", "Narrow(50)"),
        ("Narrow(5)", "Step(5)"),
        ("scale=1.0", "scale=1.5"),
        ("helper, 6", "helper, 60"),
        ("* self.width", "+ self.width"),
        ("partial(helper", "partial(deep"),
    ],
)
def test_a_change_anywhere_in_what_the_transform_refers_to_changes_the_hash(before, after):
    assert before in PLAIN
    assert fingerprint(transform_of(PLAIN), 0) == fingerprint(transform_of(PLAIN), 0)
    assert fingerprint(transform_of(PLAIN), 0) != fingerprint(transform_of(PLAIN.replace(before, after)), 0)


def test_where_the_code_stands_does_not_matter():
    assert fingerprint(transform_of(PLAIN), 0) == fingerprint(transform_of("\n\n# a remark\n" + PLAIN), 0)


@pytest.mark.parametrize(
    "source",
    [
        "import own_module\ndef transform(x): return own_module.scale(x)",
        "def transform(x):\n    import own_module as own\n    return own.scale(x)",
        "def transform(x):\n    from own_module import scale, unused\n    return scale(x)",
        "import own_module\ndef transform(x): return getattr(own_module, 'scale')(x)",
    ],
)
def test_a_function_in_a_module_of_the_users_own_counts_however_it_is_imported(tmp_path, monkeypatch, source):
    hashes = []
    for text in ("unused, scale = 0, lambda x: x * 2", "unused, scale = 0, lambda x: x * 3"):
        (tmp_path / "own_module.py").write_text(text)
        module = types.ModuleType("own_module")
        module.__file__ = str(tmp_path / "own_module.py")
        exec(text, vars(module))
        monkeypatch.setitem(sys.modules, "own_module", module)
        hashes.append(fingerprint(transform_of(source), 0))
    assert hashes[0] != hashes[1]


def test_an_installed_package_counts_by_its_version(monkeypatch):
    transform = transform_of("import torch\ndef transform(x): return torch.nn.functional.relu(x)")
    before = fingerprint(transform, 0)
    monkeypatch.setattr(torch, "__version__", "0.0.1")
    assert fingerprint(transform, 0) != before


class Files(Dataset):
    def __init__(self, **attributes):
        vars(self).update(attributes)


def touch(file):
    facts = file.stat()
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))


@pytest.mark.parametrize("change", ["touched", "longer", "new", "removed", "renamed"])
def test_files_that_a_data_set_names_count_by_size_and_time(tmp_path, change):
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    file = folder / "deep" / "one.txt"
    file.write_text("1")
    sources = [
        Files(root=folder),
        Files(root=str(folder)),
        Files(paths=[str(file), "no such file"]),
        Files(samples=[(str(file), 0)]),
        Files(by_name={"one": file}),
    ]
    before = [fingerprint(abs, source) for source in sources]
    assert before == [fingerprint(abs, source) for source in sources]
    if change == "touched":
        touch(file)
    elif change == "longer":
        facts = file.stat()
        file.write_text("12")
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    elif change == "new":
        (folder / "deep" / "two.txt").write_text("2")
    elif change == "removed":
        file.unlink()
    else:
        file.rename(folder / "deep" / "uno.txt")
    changed = [fingerprint(abs, source) != old for source, old in zip(sources, before, strict=True)]
    assert changed == [True, True] + [change != "new"] * 3


def test_a_folder_in_a_variable_of_the_transform_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/words.txt").write_text("a")
    transform = transform_of("ROOT = 'data'\ndef transform(x): return open(ROOT + x)")
    before = fingerprint(transform, 0)
    touch(Path("data/words.txt"))
    assert fingerprint(transform, 0) != before


def test_files_of_the_cache_itself_do_not_count(tmp_path):
    source = Files(root=tmp_path)
    before = fingerprint(abs, source, leave_out=tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "entry").write_text("1")
    first = fingerprint(abs, source, leave_out=tmp_path / "cache")
    (tmp_path / "cache" / "entry").write_text("12")
    assert first == fingerprint(abs, source, leave_out=tmp_path / "cache")
    assert first == before


X = torch.arange(6)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (X, X + 1),
        (X, X.float()),
        (X, X.reshape(2, 3)),
        (X.numpy(), X.numpy() + 1),
        (np.array(["a", None], dtype=object), np.array(["b", None], dtype=object)),
        ([1, 2], [1, 3]),
        ([1, 2], [1.0, 2.0]),
        ([1, 0], [True, False]),
        (["ab", "c"], ["a", "bc"]),
        ((1, 2), [1, 2]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2}, {1, 3}),
        ([[], [1]], [[1], []]),
        (None, "None"),
        (b"a", "a"),
        (re.compile("a"), re.compile("a", re.IGNORECASE)),
        (TensorDataset(X), TensorDataset(X + 1)),
        (Subset(TensorDataset(X), [0, 1]), Subset(TensorDataset(X), [0, 2])),
        (torch.float32, torch.float16),
    ],
)
def test_data_of_other_content_has_another_hash(left, right):
    assert fingerprint(abs, left) == fingerprint(abs, left) != fingerprint(abs, right)


def test_equal_data_has_the_same_hash_whether_parts_are_shared_or_not():
    shared = [1, "a"]
    assert fingerprint(abs, [shared, shared]) == fingerprint(abs, [[1, "a"], [1, "a"]])
    assert fingerprint(abs, X[::2]) == fingerprint(abs, X[::2].clone())


def test_a_hugging_face_data_set_counts_by_its_own_fingerprint():
    kind = type("Dataset", (), {"__module__": "datasets.arrow_dataset"})
    one, two = kind(), kind()
    one._fingerprint, two._fingerprint = "1f", "2f"
    one.lock = two.lock = threading.Lock()
    assert fingerprint(abs, one) == fingerprint(abs, one) != fingerprint(abs, two)


def test_what_a_decorator_wraps_counts():
    def decorated(function):
        @functools.wraps(function)
        def wrapper(x):
            return function(x)

        return wrapper

    assert fingerprint(decorated(lambda x: x + 1), 0) != fingerprint(decorated(lambda x: x + 2), 0)
    assert fingerprint(functools.cache(lambda x: x + 1), 0) != fingerprint(functools.cache(lambda x: x + 2), 0)


@pytest.mark.parametrize("thing", [threading.Lock(), (i for i in ()), open(os.devnull)])  # noqa: SIM115, PTH123
def test_what_cannot_be_hashed_is_refused_with_where_it_is_and_what_to_do(thing):
    def transform(x):
        return thing

    with pytest.raises(DataError, match=r'the transform, .*its variable thing.*pass key="\.\.\."'):
        fingerprint(transform, 0)
    with pytest.raises(DataError, match=r"the data set, .*attribute handle"):
        fingerprint(abs, Files(handle=thing))


class LeavesItsDataOut:
    """As data sets do that would rather not be sent to worker processes whole."""

    def __init__(self, x):
        self.x = x
        self.lock = threading.Lock()

    def __getstate__(self):
        return {}


class Reduced(LeavesItsDataOut):
    def __getstate__(self):
        return self.__dict__

    def __reduce__(self):
        return Reduced, ()


class NamedOnly(LeavesItsDataOut):
    def __reduce__(self):
        return "THE_ONLY_ONE"


class ReducedList(list):
    def __reduce__(self):
        return ReducedList, ()


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x

    def __getstate__(self):
        return {}


class Wrapped:
    def __init__(self, x):
        self.inner = LeavesItsDataOut(x)


class Registered(LeavesItsDataOut):
    __getstate__ = object.__getstate__


@pytest.fixture
def registered():
    copyreg.pickle(Registered, lambda thing: (Registered, ()))
    yield
    del copyreg.dispatch_table[Registered]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("kind", [LeavesItsDataOut, Reduced, NamedOnly, ReducedList, Slotted, Wrapped, Registered])
def test_what_a_class_leaves_out_when_it_is_copied_counts_all_the_same(kind):
    one, same, other = ([torch.arange(3)], [torch.arange(3)], [torch.tensor([0, 1, 5])])
    assert fingerprint(abs, kind(one)) == fingerprint(abs, kind(same)) != fingerprint(abs, kind(other))


class WithAFile(LeavesItsDataOut):
    def __init__(self, path):
        self.file = path.open()


def test_an_open_file_that_copying_leaves_out_counts_by_its_size_and_time(tmp_path):
    path = tmp_path / "data"
    path.write_text("one")
    first = fingerprint(abs, WithAFile(path))
    assert fingerprint(abs, WithAFile(path)) == first
    path.write_text("another one")
    assert fingerprint(abs, WithAFile(path)) != first


def test_what_cannot_be_hashed_and_is_left_out_is_refused():
    with pytest.raises(DataError, match=r"attribute x, a generator .*pass key="):
        fingerprint(abs, LeavesItsDataOut(index for index in range(3)))


def test_a_structure_is_code_settings_shapes_and_whole_numbers():
    def of(tensor, **settings):
        return structure_fingerprint([tensor], settings)

    assert of(torch.zeros(2, 3)) == of(torch.ones(2, 3))
    others = [torch.zeros(3, 2), torch.zeros(2, 3).half(), torch.zeros(3, 2).T, torch.zeros(2, 3, requires_grad=True)]
    assert len({of(one) for one in (torch.zeros(2, 3), *others)}) == 5
    assert of(torch.arange(3)) != of(torch.zeros(3, dtype=torch.int64))
    assert of(torch.zeros(1), p=0.1) != of(torch.zeros(1), p=0.2)


def test_a_file_that_a_structure_names_does_not_count(tmp_path):
    first = structure_fingerprint({"folder": str(tmp_path)})
    (tmp_path / "file").write_text("one")
    assert structure_fingerprint({"folder": str(tmp_path)}) == first


def test_a_hash_that_transformers_keeps_in_a_model_does_not_count():
    def of(number):
        return structure_fingerprint(types.SimpleNamespace(temperature=1.0, _original_object_hash=number))

    assert of(hash("one")) == of(hash("two"))
