"""openapi.yaml as a judge: every answer that a test gets is held against it."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import yaml
from jsonschema import Draft202012Validator

# A problem's description has a line for each of its codes.
CODE = re.compile(r"^- `(\w+)`: ", re.MULTILINE)
DESCRIPTION = Path(__file__).parents[2] / "openapi.yaml"


@cache
def load_description() -> dict[str, Any]:
    return dict(yaml.safe_load(DESCRIPTION.read_text(encoding="utf-8")))


def first_example(content: Mapping[str, Any] | None) -> Any:
    """The plainest body that is shown; None where none is taken or shown."""
    shown = {} if content is None else content
    return next((example["value"] for example in shown.get("examples", {}).values()), shown.get("example"))


async def check_answer(response: httpx.Response) -> None:
    """Raises AssertionError for an answer that openapi.yaml does not allow. A stream's body is left to its reader."""
    described = find_answer(response.request.method, response.request.url.path, response.status_code)
    _check_headers(described, response)
    content = described.get("content")
    if content is None or response.request.method == "HEAD":
        assert await response.aread() == b"", "a body where none is described"
        return
    media_type = response.headers["content-type"].partition(";")[0]
    if media_type not in content:
        # Somebody's bytes, under the type that they came with.
        assert "*/*" in content, f"{media_type} is not among {list(content)}"
    elif media_type.endswith("json"):
        answer = json.loads(await response.aread())
        check_value(content[media_type]["schema"], answer)
        if media_type == "application/problem+json":
            told = CODE.findall(described["description"])
            where = f"{response.request.method} {response.request.url.path}"
            assert answer["code"] in told, f"{answer['code']} of {where} is not among {told}"


def find_answer(method: str, path: str, status: int) -> dict[str, Any]:
    """What is described for an answer. What no route answers is a problem all the same."""
    description = load_description()
    # RFC 9110: HEAD is GET without the content.
    method = method.replace("HEAD", "GET")
    for template, operations in description["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) and method.lower() in operations:
            answers = operations[method.lower()]["responses"]
            assert str(status) in answers, f"{method} {template} does not describe {status}"
            return _resolve(answers[str(status)])
    assert status in (404, 405), f"{status} from a route that is not described: {method} {path}"
    shared = dict(description["components"]["responses"]["Problem404"])
    return {**shared, "description": f"{shared['description']}\n- `method_not_allowed`: not this one"}


def check_value(schema: dict[str, Any], value: Any) -> None:
    validator = Draft202012Validator({**schema, "components": load_description()["components"]})
    problems = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]
    assert not problems, problems


def _check_headers(described: dict[str, Any], response: httpx.Response) -> None:
    assert response.headers["x-request-id"]
    assert response.headers["x-content-type-options"] == "nosniff"
    for name, header in described.get("headers", {}).items():
        if header.get("required"):
            assert name in response.headers, f"{name} is missing"


def _resolve(described: dict[str, Any]) -> dict[str, Any]:
    reference = described.get("$ref")
    if reference is None:
        return described
    shared = load_description()["components"]["responses"][reference.rpartition("/")[2]]
    # What stands beside a reference holds in place of what it leads to (OpenAPI 3.1).
    return {**shared, **{name: value for name, value in described.items() if name != "$ref"}}
