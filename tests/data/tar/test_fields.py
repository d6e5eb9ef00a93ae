import io
import pickle
import sys
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from safetensors.torch import save

from brim.data.tar.fields import NPY_TYPES, decode_npy, decoder_of, encode
from brim.errors import DataError


def decoded(field, content):
    return decoder_of(field)(memoryview(bytearray(content)))


def npy(array):
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def picture(mode="RGB", format="png"):
    image = pytest.importorskip("PIL.Image")
    content = io.BytesIO()
    image.new(mode, (5, 4)).save(content, format=format)
    return content.getvalue()


@pytest.mark.parametrize(
    ("field", "content", "value"),
    [
        ("txt", "größe".encode(), "größe"),
        ("caption.text", b"a", "a"),
        ("json", b'{"a": [1, null]}', {"a": [1, None]}),
        ("cls", b"7\n", 7),
        ("index", b"-1", -1),
        ("id", b"3", 3),
        ("int", b"3", 3),
        ("float", b"0.5", 0.5),
        ("bin", b"\x00\x01", b"\x00\x01"),
        ("mp4", b"\x00\x01", b"\x00\x01"),
    ],
)
def test_the_last_extension_says_what_the_bytes_are(field, content, value):
    assert decoded(field, content) == value


def test_tensors_come_back_from_torch_and_safetensors_files():
    content = io.BytesIO()
    torch.save({"x": torch.ones(2)}, content)
    assert torch.equal(decoded("pt", content.getvalue())["x"], torch.ones(2))
    assert torch.equal(decoded("pth", content.getvalue())["x"], torch.ones(2))
    assert torch.equal(decoded("safetensors", save({"x": torch.ones(2)}))["x"], torch.ones(2))


@pytest.mark.parametrize("field", ["png", "jpg", "jpeg", "ppm", "webp"])
def test_a_picture_is_a_tensor_of_bytes_with_the_channels_first(field):
    pixels = decoded(field, picture(format="jpeg" if field == "jpg" else field))
    assert (pixels.shape, pixels.dtype) == ((3, 4, 5), torch.uint8)


def test_a_grey_picture_has_three_channels_too():
    assert decoded("png", picture("L")).shape == (3, 4, 5)


def test_a_grey_picture_of_16_bits_keeps_its_shades():
    content = io.BytesIO()
    Image.fromarray(np.array([[0, 300, 0x8000, 0xFFFF]], np.uint16)).save(content, "png")
    assert decoded("png", content.getvalue())[:, 0].tolist() == [[0, 1, 128, 255]] * 3


def test_without_pillow_a_picture_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"with Pillow, which is not installed; run pip install 'brim\[images\]'"):
        decoded("jpg", b"")


@pytest.mark.parametrize("field", ["pyd", "pickle", "pkl", "meta.PKL"])
def test_a_pickle_is_refused_unless_it_is_allowed(field):
    with pytest.raises(DataError, match=r"is a pickle, which can run any code .* allow_pickle=True"):
        decoder_of(field)
    assert decoder_of(field, allow_pickle=True)(memoryview(pickle.dumps({1}))) == {1}


def test_a_torch_file_that_would_run_code_is_not_loaded():
    class Harm:
        def __reduce__(self):
            return print, ("harm",)

    content = io.BytesIO()
    torch.save(Harm(), content)
    with pytest.raises(pickle.UnpicklingError):
        decoded("pt", content.getvalue())


@given(
    arrays.arrays(
        st.sampled_from([np.dtype(order + kind) for kind in sorted(NPY_TYPES) for order in "<>"]),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    st.booleans(),
)  # fmt: skip
def test_any_array_of_numbers_is_read_as_numpy_reads_it(array, fortran):
    content = npy(np.asfortranarray(array) if fortran else array)
    tensor = decoded("npy", content)
    expected = np.load(io.BytesIO(content))
    assert tensor.shape == expected.shape
    assert tensor.numpy().tobytes() == expected.astype(expected.dtype.newbyteorder("=")).tobytes()


def test_an_array_can_be_written_to():
    tensor = decoded("npy", npy(np.arange(3)))
    tensor += 1
    assert tensor.tolist() == [1, 2, 3]


def claiming(**changes):
    header = {"descr": "<f4", "fortran_order": False, "shape": (2,), **changes}
    text = (repr(header) + "\n").encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(8)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY\x01\x00",
        b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + bytes(100),
        claiming(shape=(1 << 62, 4)),
        claiming(shape=(-1,)),
        claiming(shape=(3,)),
        claiming(shape=(1,)),
        claiming(shape=[2]),
        claiming(shape=(True, 2)),
        claiming(descr="|O"),
        claiming(descr="<U2"),
        claiming(descr=[("a", "<f4")]),
        claiming(descr="<f4" * 9),
        npy(np.arange(4))[:-1],
        npy(np.arange(4)) + b"\x00",
        npy(np.array([{}], dtype=object)),
        b"\x93NUMPY\x01\x00\x12\x00__import__('os')\n\n" + bytes(8),
    ],
)
def test_an_array_that_claims_what_is_not_there_is_refused(content):
    with pytest.raises((ValueError, SyntaxError)):
        decode_npy(memoryview(content))


@given(st.binary(max_size=200))
def test_no_bytes_make_the_array_reader_do_anything_but_refuse(tail):
    for content in (tail, b"\x93NUMPY\x01\x00" + tail, claiming()[:10] + tail):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            assert isinstance(decode_npy(memoryview(bytearray(content))), np.ndarray)


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("txt", "a", "txt"),
        ("caption", "a", "caption.txt"),
        ("cls", 7, "cls"),
        ("id", 7, "id"),
        ("label", True, "label.cls"),
        ("label", np.int64(3), "label.cls"),
        ("score", 0.5, "score.float"),
        ("score.float", 1, "score.float"),
        ("meta", {"a": [1]}, "meta.json"),
        ("boxes", [1, 2], "boxes.json"),
        ("json", "a", "json"),
        ("Image.JPG", b"\xff", "image.jpg"),
        ("bin", b"", "bin"),
    ],
)
def test_a_value_comes_back_from_its_bytes_under_a_name_that_says_what_it_is(field, value, name):
    written, content = encode(field, value)
    assert written == name
    if written != "image.jpg":
        assert decoded(written, content) == value


@pytest.mark.parametrize(
    "value", [torch.arange(6).reshape(2, 3).T, torch.tensor(1.5), torch.ones(2, dtype=torch.bfloat16), np.ones((2, 2))]
)
def test_tensors_and_arrays_come_back(value):
    name, content = encode("x", value)
    back = decoded(name, content)
    assert torch.equal(back, torch.as_tensor(value))
    assert back.dtype == torch.as_tensor(value).dtype


def test_a_pillow_picture_is_packed_without_loss():
    image = pytest.importorskip("PIL.Image").new("RGB", (5, 4), (1, 2, 3))
    name, content = encode("image", image)
    assert name == "image.png"
    assert decoded(name, content)[:, 0, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("value", [object(), {"a": torch.ones(2)}, np.array(["a"]), np.array([{}])])
def test_what_cannot_be_written_is_one_sentence(value):
    with pytest.raises(DataError, match="cannot be written"):
        encode("x", value)
