"""Arguments that a person puts in place of the model's: checked, kept, digested, and shown to nobody here."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from app.api import create_app
from app.ids import ApprovalId, TenantId
from app.policy import ApprovalKind, arguments_digest, keyed_digest
from app.ports.desk import Approval
from app.ports.store import TenantStore
from tests.api.harness import Service
from tests.api.questions import ask, decide, pointers, read, told

EDITED = {"amount": 5, "iban": "DE00 secret"}


async def asked(service: Service, **about: Any) -> str:
    return await ask(service, await service.submit(), **about)


async def kept(service: Service, approval_id: str) -> Approval:
    store: TenantStore = service.deps.store
    async with store.begin(TenantId(service.keys.tenant_id)) as tx:
        approval = await tx.get_approval(ApprovalId(approval_id))
    assert approval is not None
    return approval


async def test_edited_arguments_are_kept_for_the_call_and_only_their_digest_is_told(service: Service) -> None:
    approval_id = await asked(service)
    response = await decide(service, approval_id, arguments=EDITED)
    approval = response.json()
    assert (response.status_code, approval["status"]) == (200, "approved")
    assert approval["decision"]["edited_digest"] == arguments_digest("wire", EDITED)
    assert "secret" not in json.dumps(await read(service, approval_id))
    assert (await kept(service, approval_id)).arguments == EDITED


async def test_the_digest_of_what_was_asked_about_stays(service: Service) -> None:
    approval_id = await asked(service)
    before = await read(service, approval_id)
    after = (await decide(service, approval_id, arguments=EDITED)).json()
    assert after["arguments_digest"] == before["arguments_digest"] != after["decision"]["edited_digest"]


async def test_the_digest_is_made_as_the_deployment_makes_it(service: Service) -> None:
    approval_id = await asked(service)
    keyed = replace(service.deps, digest=partial(keyed_digest, b"a key"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(create_app(keyed)), base_url="http://test") as client:
        response = await decide(replace(service, client=client), approval_id, arguments=EDITED)
    assert response.json()["decision"]["edited_digest"] == keyed_digest(b"a key", "wire", EDITED)


async def test_the_same_edit_by_the_same_subject_again_is_the_same_decision(service: Service) -> None:
    approval_id = await asked(service)
    first = await decide(service, approval_id, arguments=EDITED)
    again = await decide(service, approval_id, arguments=dict(reversed(EDITED.items())))
    assert (again.status_code, again.json()) == (200, first.json())


@pytest.mark.parametrize("arguments", [None, {"amount": 6}, {"amount": 5}])
async def test_another_edit_is_another_decision(service: Service, arguments: dict[str, Any] | None) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, arguments=EDITED)
    assert told(await decide(service, approval_id, arguments=arguments)) == (409, "approval_already_decided")


async def test_arguments_that_do_not_fit_are_pointed_to_one_by_one(service: Service) -> None:
    approval_id = await asked(service)
    response = await decide(service, approval_id, arguments={"amount": 0, "iban": 5, "to": "me"})
    assert told(response) == (422, "invalid_arguments")
    assert pointers(response) == ["/arguments", "/arguments/amount", "/arguments/iban"]
    assert (await read(service, approval_id))["status"] == "pending"


async def test_what_is_missing_is_told_of_the_whole(service: Service) -> None:
    response = await decide(service, await asked(service), arguments={})
    assert (told(response), pointers(response)) == ((422, "invalid_arguments"), ["/arguments"])


async def test_no_refusal_repeats_what_was_sent(service: Service) -> None:
    response = await decide(service, await asked(service), arguments={"amount": "a secret", "iban": ["a secret"]})
    assert told(response) == (422, "invalid_arguments")
    assert "a secret" not in response.text


@pytest.mark.parametrize(
    ("decision", "about"),
    [
        ("deny", {}),
        ("approve", {"dispatch": 2}),
        ("retry", {"kind": ApprovalKind.OUTCOME}),
    ],
)
async def test_only_an_approval_of_a_call_that_was_not_out_changes_arguments(
    service: Service, decision: str, about: dict[str, Any]
) -> None:
    approval_id = await asked(service, **about)
    response = await decide(service, approval_id, decision, arguments=EDITED)
    assert (told(response), pointers(response)) == ((422, "arguments_not_editable"), ["/arguments"])
    assert (await read(service, approval_id))["status"] == "pending"


async def test_who_may_not_read_runs_changes_no_arguments_and_may_still_approve(service: Service) -> None:
    approval_id = await asked(service)
    refused = await decide(service, approval_id, by=service.keys.approver, arguments=EDITED)
    approved = await decide(service, approval_id, by=service.keys.approver)
    assert (told(refused), approved.status_code) == ((403, "missing_scope"), 200)


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\N{GRINNING FACE}", "\u202e", "\u2028\x85", '"\\', "x" * 900_000])
async def test_any_text_goes_to_the_call_as_it_was_sent(service: Service, text: str) -> None:
    approval_id = await asked(service)
    arguments = {"amount": 1, "iban": text}
    response = await decide(service, approval_id, arguments=arguments)
    assert (response.status_code, (await kept(service, approval_id)).arguments) == (200, arguments)


async def test_numbers_go_to_the_call_as_they_were_sent(service: Service) -> None:
    approval_id = await asked(service, tool="pay")
    arguments = {"f": [0.1, 1e-300, -0.0, 1.0, 5e-324, 123456789.123456789], "i": [2**63 - 1, -1], "n": None, "e": {}}
    response = await decide(service, approval_id, arguments=arguments)
    assert response.status_code == 200
    sent, got = arguments, (await kept(service, approval_id)).arguments
    assert json.dumps(got, sort_keys=True) == json.dumps(sent, sort_keys=True)


async def test_a_name_that_is_hard_to_point_to_is_escaped(service: Service) -> None:
    response = await decide(service, await asked(service), arguments={"amount": 1, "a/b~c": 1})
    assert (told(response), pointers(response)) == ((422, "invalid_arguments"), ["/arguments"])


async def test_arguments_past_the_bodys_limit_are_refused(service: Service) -> None:
    response = await decide(service, await asked(service), arguments={"amount": 1, "iban": "x" * 1_100_000})
    assert told(response) == (413, "request_too_large")
