"""What the contract says that bodies hold, name by name, against the description that is generated from the app."""

from typing import Any, Final

import pytest

from app.api.app import describe_only
from app.api.openapi import describe

SCHEMAS: Final[dict[str, Any]] = describe(describe_only())["components"]["schemas"]

RUN: Final = """id state agent agent_version session_id user subject input output output_text error waiting_for
    cancel_requested_at prompt_version prompt_fingerprint model usage budget depth path parent_run_id resumes metadata
    created_at started_at ended_at last_seq recoveries"""
USAGE: Final = "input_tokens cached_tokens output_tokens model_calls tool_calls cost"
SUBMISSION: Final = """agent input session_id user timeout_seconds budget max_llm_calls context output_schema
    on_session_busy priority metadata"""
DEFINITION: Final = """instructions description model task_class tools idempotent_tools approval_required_tools
    tool_choice output_schema budget max_llm_calls deadlines retry loop repair concurrency max_iterations history
    on_tool_error on_indeterminate approval_denial approval_ttl_seconds guardrails hooks callbacks sub_agents
    metadata"""
EVENT: Final = "seq run_id kind at iteration author invocation_id actions final"
PROBLEM: Final = "type title status detail instance code errors"
STATES: Final = [
    "queued",
    "running",
    "suspended",
    "completed",
    "failed",
    "budget_exhausted",
    "max_iterations_exceeded",
    "loop_limit_exceeded",
    "cancelled",
]


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("RunView", RUN),
        ("RunUsage", USAGE),
        ("RunBudget", "limits sources"),
        ("RunError", "code detail"),
        ("SubmitRun", SUBMISSION),
        ("ContextInput", "pinned retrieved"),
        ("AgentDefinition", DEFINITION),
        ("AgentView", f"{DEFINITION} version digest created_at"),
        ("EventView", EVENT),
        ("Problem", PROBLEM),
        ("FieldError", "pointer detail"),
        ("DecideApproval", "decision arguments_digest arguments reason"),
        ("ApprovalView", "id run_id agent tool kind status arguments_digest summary decision"),
        ("CancelRun", "reason"),
        ("ResumeRun", "resolutions"),
        ("Me", "tenant_id subject scopes limits"),
    ],
)
def test_a_body_has_every_member_that_the_contract_names(schema: str, names: str) -> None:
    assert set(names.split()) - set(SCHEMAS[schema]["properties"]) == set()


def test_a_run_is_in_one_of_nine_states() -> None:
    assert sorted(SCHEMAS["RunState"]["enum"]) == sorted(STATES)


@pytest.mark.parametrize("schema", ["SubmitRun", "AgentDefinition", "DecideApproval", "CreateSession", "CreateWebhook"])
def test_nothing_but_what_is_named_is_taken(schema: str) -> None:
    assert SCHEMAS[schema]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("schema", "required"),
    [
        ("SubmitRun", {"agent", "input"}),
        ("AgentDefinition", {"instructions"}),
        ("DecideApproval", {"decision", "arguments_digest"}),
    ],
)
def test_what_has_to_be_said_is_little(schema: str, required: set[str]) -> None:
    assert set(SCHEMAS[schema]["required"]) == required


def test_a_ticket_is_asked_for_by_its_resource_and_tells_when_it_ends() -> None:
    asked, given = SCHEMAS["CreateTicket"], SCHEMAS["TicketView"]
    assert (set(asked["properties"]), set(given["properties"])) == ({"resource"}, {"ticket", "expires_at"})
