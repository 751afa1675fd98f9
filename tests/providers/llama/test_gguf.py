import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.errors import ConfigurationError
from app.providers.llama.gguf import read_header
from tests.providers.support import gguf, text_array, text_value, u32, u32_array

F32, Q4_0, UNKNOWN = 0, 2, 200
WHOLE = gguf(
    metadata=[
        ("general.architecture", text_value("llama")),
        ("llama.block_count", u32(2)),
        ("heads", u32_array(1, 2, 3)),
        ("words", text_array("a", "bc")),
    ],
    tensors=[("first", (32, 2), Q4_0, 0), ("second", (3,), F32, 64)],
    data_bytes=64 + 12,
)
# The property tests write thousands of files into one folder, each over the last.
ONE_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def refusal(folder: Path, content: bytes) -> ConfigurationError:
    (folder / "model.gguf").write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        read_header(folder / "model.gguf")
    return caught.value


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(WHOLE)
    header = read_header(tmp_path / "model.gguf")

    assert header.version == 3
    assert header.text("general.architecture") == "llama"
    assert header.integer("llama.block_count") == 2
    assert header.metadata["heads"] == [1, 2, 3]
    assert header.metadata["words"] == ["a", "bc"]
    assert [(tensor.name, tensor.size_bytes) for tensor in header.tensors] == [("first", 36), ("second", 12)]
    assert header.weight_bytes == 64 + 12


def test_the_default_model_is_read(model_path: Path) -> None:
    header = read_header(model_path)

    assert header.integer("llama.context_length") == 8192
    assert len(header.tensors) == 272
    assert "tokenizer.ggml.tokens" not in header.metadata
    assert all(tensor.size_bytes for tensor in header.tensors)


def test_a_key_of_another_type_reads_as_none(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(gguf(metadata=[("n", text_value("7")), ("t", u32(7))]))
    header = read_header(tmp_path / "model.gguf")

    assert (header.integer("n"), header.text("t"), header.integer("missing")) == (None, None, None)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.gguf") as caught:
        read_header(tmp_path / "nowhere.gguf")
    assert caught.value.code == "model_file_missing"


def test_a_folder_cannot_be_read_as_a_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_header(tmp_path)
    assert caught.value.code == "model_file_unreadable"


@given(length=st.integers(0, len(WHOLE) - 1))
@example(length=0)
@example(length=len(WHOLE) - 1)
@ONE_FOLDER
def test_a_file_cut_anywhere_is_damaged(tmp_path: Path, length: int) -> None:
    assert refusal(tmp_path, WHOLE[:length]).code == "model_file_damaged"


@given(position=st.integers(0, len(WHOLE) - 77), value=st.integers(0, 255))
@ONE_FOLDER
def test_a_changed_byte_is_read_or_refused_by_name(tmp_path: Path, position: int, value: int) -> None:
    (tmp_path / "model.gguf").write_bytes(WHOLE[:position] + bytes([value]) + WHOLE[position + 1 :])
    assert _code(tmp_path / "model.gguf") in {None, "model_file_damaged"}


def _code(path: Path) -> str | None:
    try:
        read_header(path)
    except ConfigurationError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PK\x03\x04" + bytes(100), "does not begin"),
        (gguf(version=1), "version is 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "more than it has room for"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "more than it has room for"),
        (gguf(metadata=[("a", struct.pack("<I", 99) + bytes(32))]), "unknown type 99"),
        (gguf(metadata=[("a", struct.pack("<IIQ", 9, 4, 2**61))]), "more than it has room for"),
        (gguf(metadata=[("a", struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 9, 1) * 9)]), "arrays in arrays"),
        (gguf(metadata=[("general.alignment", u32(0))]), "alignment is 0"),
        (gguf(metadata=[("general.alignment", u32(33))]), "alignment is 33"),
        (gguf(tensors=[("t", (1, 1, 1, 1, 1), F32, 0)]), "5 dimensions"),
        (gguf(tensors=[("t", (31,), Q4_0, 0)], data_bytes=64), "rows of the tensor 't' are 31 long"),
        (gguf(tensors=[("t", (2,), F32, 0)], data_bytes=7), "cut short: the tensor 't'"),
        (gguf(tensors=[("t", (2,), UNKNOWN, 64)], data_bytes=63), "cut short: the tensor 't'"),
        (gguf(tensors=[("t", (2**63, 2**63), F32, 0)], data_bytes=7), "cut short: the tensor 't'"),
    ],
)
def test_what_cannot_be_a_model_is_damaged_and_says_why(tmp_path: Path, content: bytes, problem: str) -> None:
    error = refusal(tmp_path, content)

    assert error.code == "model_file_damaged"
    assert problem in str(error)


def test_a_tensor_of_a_type_that_is_newer_than_the_table_is_let_through(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(gguf(tensors=[("t", (2,), UNKNOWN, 0)], data_bytes=1))

    assert read_header(tmp_path / "model.gguf").tensors[0].size_bytes is None


def test_a_long_array_is_passed_over(tmp_path: Path) -> None:
    words = text_array(*["word"] * 5000)
    numbers = u32_array(*range(5000))
    content = gguf(metadata=[("words", words), ("numbers", numbers), ("last", u32(1))])
    (tmp_path / "model.gguf").write_bytes(content)

    assert dict(read_header(tmp_path / "model.gguf").metadata) == {"last": 1}
