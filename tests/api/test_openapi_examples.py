"""Every example of openapi.yaml is what its schema allows, and none is missing."""

from collections.abc import Iterator
from typing import Any

from tests.api.contract import check_value, load_description


def operations() -> Iterator[dict[str, Any]]:
    for methods in load_description()["paths"].values():
        yield from methods.values()


def contents() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every body that is sent or answered: whose, of what type, and how it is described."""
    for operation in operations():
        name = operation["operationId"]
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            yield f"{name} is sent", media_type, content
        for status, answer in operation["responses"].items():
            for media_type, content in answer.get("content", {}).items():
                yield f"{name} answers {status}", media_type, content
    for name, answer in load_description()["components"]["responses"].items():
        for media_type, content in answer["content"].items():
            yield name, media_type, content


def examples(content: dict[str, Any]) -> list[Any]:
    """All examples of a body or a parameter."""
    given = [content["example"]] if "example" in content else []
    return given + [resolve(example)["value"] for example in content.get("examples", {}).values()]


def resolve(example: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in example:
        return example
    return dict(load_description()["components"]["examples"][example["$ref"].rpartition("/")[2]])


def parameters() -> Iterator[tuple[str, dict[str, Any]]]:
    for operation in operations():
        for parameter in operation.get("parameters", ()):
            yield f"{operation['operationId']} {parameter['name']}", parameter


def complaints(schema: dict[str, Any], value: Any) -> list[str]:
    try:
        check_value(schema, value)
    except AssertionError as error:
        return [str(error)]
    return []


def test_every_body_has_an_example() -> None:
    assert [(place, media_type) for place, media_type, content in contents() if not examples(content)] == []


def test_every_example_of_a_body_is_allowed_by_its_schema() -> None:
    wrong = {
        place: told
        for place, _, content in contents()
        for example in examples(content)
        if (told := complaints(content["schema"], example))
    }
    assert wrong == {}


def test_every_parameter_is_explained_and_has_an_example() -> None:
    assert [name for name, parameter in parameters() if not parameter.get("description")] == []
    assert [name for name, parameter in parameters() if not examples(parameter)] == []


def test_every_example_of_a_parameter_is_allowed_by_its_schema() -> None:
    wrong = {
        name: told
        for name, parameter in parameters()
        for example in examples(parameter)
        if (told := complaints(parameter["schema"], example))
    }
    assert wrong == {}


def test_every_example_that_is_kept_is_used() -> None:
    used = {
        example["$ref"].rpartition("/")[2]
        for _, _, content in contents()
        for example in content.get("examples", {}).values()
        if "$ref" in example
    }
    assert set(load_description()["components"]["examples"]) - used == set()


def test_the_example_of_every_schema_that_is_answered_is_allowed_by_it() -> None:
    components = load_description()["components"]
    wrong = {
        name: told
        for name, example in components["examples"].items()
        if (told := complaints(components["schemas"][name], example["value"]))
    }
    assert wrong == {}
