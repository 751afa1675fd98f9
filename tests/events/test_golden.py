"""What logs already hold can be read, and is written the same, for ever (see golden/README.md)."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.events import EVENT_CLASSES, EVENT_KINDS, EventBody, decode_event, encode_event

_GOLDEN = Path(__file__).parent / "golden"
_FILES = sorted(_GOLDEN.glob("*.json"))


def read_golden(path: Path) -> tuple[str, str]:
    """The kind, and the payload as a log holds it: in one line, its keys in their order."""
    golden = json.loads(path.read_text(encoding="ascii"))
    return golden["kind"], json.dumps(golden["payload"], ensure_ascii=True, separators=(",", ":"))


def versions_of(kind: type[EventBody]) -> range:
    return range(1, kind.latest_version() + 1)


def newer_than(body: EventBody) -> set[str]:
    """Fields that the event's version does not have yet."""
    return {name for name, version in body.ADDED_IN.items() if version > body.v}


def left_at_default(body: EventBody) -> set[str]:
    """Fields that say nothing because they hold what they would hold anyway."""
    return {
        name
        for name, field in type(body).model_fields.items()
        if getattr(body, name) == field.get_default(call_default_factory=True)
    }


def test_there_are_45_kinds() -> None:
    assert (len(EVENT_KINDS), len(EVENT_CLASSES)) == (45, 45)


def test_every_kind_and_version_has_its_file_and_no_file_is_left_over() -> None:
    expected = {
        f"{cls.model_fields['kind'].default}.v{version}.json" for cls in EVENT_CLASSES for version in versions_of(cls)
    }
    assert {path.name for path in _FILES} == expected


def test_the_rule_that_files_are_only_added_is_written_beside_them() -> None:
    assert "Never edited, only added to" in (_GOLDEN / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_file_is_named_by_its_kind_and_version(path: Path) -> None:
    kind, payload = read_golden(path)
    assert path.stem == f"{kind}.v{json.loads(payload)['v']}"


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_what_a_log_holds_decodes_and_is_written_again_byte_for_byte(path: Path) -> None:
    kind, payload = read_golden(path)
    assert encode_event(decode_event(kind, payload)) == payload


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_file_sets_every_field_that_its_version_has_to_something_telling(path: Path) -> None:
    body = decode_event(*read_golden(path))
    assert left_at_default(body) - {"v", "kind"} == newer_than(body)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_file_has_exactly_the_fields_of_its_version(path: Path) -> None:
    kind, payload = read_golden(path)
    body = decode_event(kind, payload)
    assert set(json.loads(payload)) == set(type(body).model_fields) - {"kind"} - newer_than(body)


@pytest.mark.parametrize("cls", EVENT_CLASSES, ids=lambda cls: cls.__name__)
def test_what_is_written_now_is_of_the_latest_version(cls: type[EventBody]) -> None:
    assert cls.model_fields["v"].default == cls.latest_version()


@pytest.mark.parametrize("cls", EVENT_CLASSES, ids=lambda cls: cls.__name__)
def test_every_version_after_the_first_brought_a_field(cls: type[EventBody]) -> None:
    assert set(cls.ADDED_IN.values()) == set(versions_of(cls)) - {1}


@pytest.mark.parametrize("cls", EVENT_CLASSES, ids=lambda cls: cls.__name__)
def test_a_field_that_came_later_may_be_missing(cls: type[EventBody]) -> None:
    assert {name for name in cls.ADDED_IN if cls.model_fields[name].is_required()} == set()


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_an_event_knows_its_kind(path: Path) -> None:
    kind, payload = read_golden(path)
    assert decode_event(kind, payload).kind == kind


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_an_event_has_no_field_that_the_wire_puts_in_front_of_it(path: Path) -> None:
    payload: dict[str, Any] = json.loads(read_golden(path)[1])
    assert not {"seq", "run_id", "kind", "at", "invocation_id"} & set(payload)
