"""/sessions/{id}/artifacts: bytes by name, in versions, given back as they came and never as a page."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.api import ApiConfig
from tests.api.harness import Service, with_key

UNKNOWN = "ses_00000000000000000000000000"
PLAN = b"\x00\xff<script>alert(1)</script>"


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(max_request_bytes=1_024, max_artifact_bytes=5_000)


async def put(service: Service, session_id: str, name: str = "plan.pdf", data: Any = PLAN, **headers: str) -> Any:
    return await service.client.put(f"/sessions/{session_id}/artifacts/{name}", content=data, headers=headers)


async def test_an_artifact_reads_back_as_it_was_put(service: Service) -> None:
    session_id = await service.create_session()
    stored = await put(service, session_id, **{"Content-Type": "application/pdf"})
    digest = hashlib.sha256(PLAN).hexdigest()
    view = stored.json()
    assert (stored.status_code, stored.headers["etag"]) == (201, f'"{digest}"')
    assert (view.pop("created_at") is not None, view) == (
        True,
        {
            "name": "plan.pdf",
            "version": 1,
            "content_type": "application/pdf",
            "size": len(PLAN),
            "sha256": digest,
            "run_id": None,
        },
    )
    read = await service.client.get(f"/sessions/{session_id}/artifacts/plan.pdf")
    assert (read.content, read.headers["content-type"], read.headers["etag"]) == (
        PLAN,
        "application/pdf",
        f'"{digest}"',
    )
    assert (await service.client.get(stored.headers["location"])).content == PLAN


async def test_an_artifact_is_answered_as_an_attachment_in_which_nothing_runs(service: Service) -> None:
    session_id = await service.create_session()
    await put(service, session_id, "page.html", **{"Content-Type": "text/html"})
    read = await service.client.get(f"/sessions/{session_id}/artifacts/page.html")
    assert read.headers["content-disposition"] == 'attachment; filename="page.html"'
    assert read.headers.get_list("x-content-type-options") == ["nosniff"]
    assert read.headers["content-security-policy"] == "default-src 'none'; sandbox"


async def test_each_put_is_a_version_and_the_earlier_ones_stay(service: Service) -> None:
    session_id = await service.create_session()
    await put(service, session_id, data=b"one")
    second = await put(service, session_id, data=b"two")
    path = f"/sessions/{session_id}/artifacts/plan.pdf"
    newest, first = await service.client.get(path), await service.client.get(f"{path}/versions/1")
    assert second.json()["version"] == 2
    assert (newest.content, newest.headers["artifact-version"]) == (b"two", "2")
    assert (first.content, first.headers["artifact-version"]) == (b"one", "1")


async def test_an_artifact_may_be_empty_and_of_no_type(service: Service) -> None:
    session_id = await service.create_session()
    stored = await put(service, session_id, data=b"")
    assert (stored.json()["size"], stored.json()["content_type"]) == (0, "application/octet-stream")
    assert (await service.client.get(f"/sessions/{session_id}/artifacts/plan.pdf")).content == b""


@pytest.mark.parametrize("content_type", ["application/json", "text/plain; charset=latin-1"])
async def test_no_type_is_read_or_changed(service: Service, content_type: str) -> None:
    session_id = await service.create_session()
    await put(service, session_id, data=b"{no json", **{"Content-Type": content_type})
    read = await service.client.get(f"/sessions/{session_id}/artifacts/plan.pdf")
    assert (read.content, read.headers["content-type"]) == (b"{no json", content_type)


async def test_an_artifact_may_be_larger_than_any_other_body(service: Service) -> None:
    session_id = await service.create_session()
    assert (await put(service, session_id, data=b"x" * 5_000)).status_code == 201


async def test_an_artifact_past_its_limit_is_refused_and_not_kept(service: Service) -> None:
    session_id = await service.create_session()
    response = await put(service, session_id, data=b"x" * 5_001)
    assert (response.status_code, response.json()["code"]) == (413, "artifact_too_large")
    assert (await service.client.get(f"/sessions/{session_id}/artifacts")).json()["items"] == []


async def test_an_artifact_that_tells_no_length_is_counted_as_it_comes(service: Service) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1_000

    session_id = await service.create_session()
    response = await put(service, session_id, data=endless())
    assert (response.status_code, response.json()["code"]) == (413, "artifact_too_large")


async def test_the_larger_limit_is_that_routes_alone(service: Service) -> None:
    created = await service.client.post("/sessions", json={"title": "x" * 2_000})
    stored = await service.client.put("/agents/artifacts", json={"instructions": "x" * 2_000})
    assert (created.status_code, created.json()["code"]) == (413, "request_too_large")
    assert (stored.status_code, stored.json()["code"]) == (413, "request_too_large")


@pytest.mark.parametrize("name", ["a%20b", "a%00", "%C3%A4", "x" * 129, "a%0A", "a:b"])
async def test_a_name_that_no_artifact_can_have_is_refused(service: Service, name: str) -> None:
    session_id = await service.create_session()
    response = await put(service, session_id, name)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/path/name")
    assert (await service.client.get(f"/sessions/{session_id}/artifacts/{name}")).status_code == 404


async def test_a_name_may_have_128_characters(service: Service) -> None:
    session_id = await service.create_session()
    assert (await put(service, session_id, "x" * 128)).status_code == 201


async def test_bytes_that_are_said_to_be_compressed_are_refused(service: Service) -> None:
    session_id = await service.create_session()
    assert (await put(service, session_id, **{"Content-Encoding": "gzip"})).status_code == 415


@pytest.mark.parametrize("content_type", ["", "pdf", "text/", "text/plain, text/html", "text/" + "x" * 251])
async def test_a_type_that_is_none_is_refused(service: Service, content_type: str) -> None:
    session_id = await service.create_session()
    assert (await put(service, session_id, **{"Content-Type": content_type})).status_code == 400


async def test_artifacts_are_listed_by_name_each_with_its_newest_version_and_pages_join(service: Service) -> None:
    session_id = await service.create_session()
    for name in ("b", "a", "c", "a"):
        await put(service, session_id, name)
    path = f"/sessions/{session_id}/artifacts?limit=2"
    first = (await service.client.get(path)).json()
    second = (await service.client.get(f"{path}&cursor={first['next_cursor']}")).json()
    assert [(item["name"], item["version"]) for item in first["items"] + second["items"]] == [
        ("a", 2),
        ("b", 1),
        ("c", 1),
    ]
    assert second["next_cursor"] is None


async def test_a_cursor_of_another_session_is_refused(service: Service) -> None:
    one, other = await service.create_session(), await service.create_session()
    await put(service, one, "a")
    await put(service, one, "b")
    cursor = (await service.client.get(f"/sessions/{one}/artifacts?limit=1")).json()["next_cursor"]
    response = await service.client.get(f"/sessions/{other}/artifacts?cursor={cursor}")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")


@pytest.mark.parametrize("session_id", [UNKNOWN, "ses_x", "%00"])
async def test_a_session_that_is_not_there_has_no_artifacts(service: Service, session_id: str) -> None:
    path = f"/sessions/{session_id}/artifacts"
    assert (await put(service, session_id)).status_code == 404
    assert (await service.client.get(path)).status_code == 404
    assert (await service.client.get(f"{path}/plan.pdf")).status_code == 404
    assert (await service.client.get(f"{path}/plan.pdf/versions/1")).status_code == 404


@pytest.mark.parametrize("version", ["0", "2", "-1", "01", "x", "9" * 30])
async def test_a_version_that_is_not_there_is_not_found(service: Service, version: str) -> None:
    session_id = await service.create_session()
    await put(service, session_id)
    path = f"/sessions/{session_id}/artifacts/plan.pdf/versions/{version}"
    assert (await service.client.get(path)).status_code == 404


async def test_another_tenants_artifacts_are_not_found(service: Service) -> None:
    session_id = await service.create_session()
    await put(service, session_id)
    other, path = with_key(service.others_keys.service), f"/sessions/{session_id}/artifacts"
    assert (await put(service, session_id, **other)).status_code == 404
    assert (await service.client.get(path, headers=other)).status_code == 404
    assert (await service.client.get(f"{path}/plan.pdf", headers=other)).status_code == 404
    assert (await service.client.get(f"{path}/plan.pdf/versions/1", headers=other)).status_code == 404
    assert (await service.client.get(path)).json()["items"][0]["version"] == 1


async def test_reading_and_writing_are_scopes_of_their_own(service: Service) -> None:
    session_id = await service.create_session()
    await put(service, session_id)
    reader, stranger = with_key(service.keys.conversationalist), with_key(service.keys.reader)
    path = f"/sessions/{session_id}/artifacts"
    assert (await service.client.get(f"{path}/plan.pdf", headers=reader)).status_code == 200
    assert (await put(service, session_id, **reader)).status_code == 403
    assert (await service.client.get(path, headers=stranger)).status_code == 403
    assert (await service.client.get(f"{path}/plan.pdf", headers=stranger)).status_code == 403
    assert (await service.client.get(f"{path}/plan.pdf/versions/1", headers=stranger)).status_code == 403


async def test_an_unknown_parameter_is_refused_on_every_route(service: Service) -> None:
    session_id = await service.create_session()
    path = f"/sessions/{session_id}/artifacts"
    answers = [
        await put(service, session_id, "plan.pdf?x=1"),
        await service.client.get(f"{path}?x=1"),
        await service.client.get(f"{path}/plan.pdf?x=1"),
        await service.client.get(f"{path}/plan.pdf/versions/1?x=1"),
    ]
    assert [answer.status_code for answer in answers] == [422] * 4


async def test_artifacts_go_with_their_session(service: Service) -> None:
    session_id = await service.create_session()
    await put(service, session_id)
    await service.client.delete(f"/sessions/{session_id}")
    assert (await service.client.get(f"/sessions/{session_id}/artifacts/plan.pdf")).status_code == 404


@pytest.mark.parametrize("name", ["%2e", "%2e%2e"])
async def test_no_artifact_is_called_like_a_step_in_a_path(service: Service, name: str) -> None:
    session_id = await service.create_session()
    stored = await service.client.put(f"/sessions/{session_id}/artifacts/{name}", content=b"x")
    assert stored.status_code == 422
