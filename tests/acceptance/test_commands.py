"""The commands beside ``serve``."""

import re
from contextlib import ExitStack, closing

import yaml

from tests.acceptance.client import Caller, say
from tests.acceptance.deployments import Deployment, call, run_command, start
from tests.acceptance.service import ROOT, Place, Stage
from tests.conftest import DatabaseUrls

AGENT = "examples/agent.yaml"
QUESTION = "What is the capital of France?"


def test_run_answers_without_a_server_and_tells_its_steps(commands: ExitStack) -> None:
    child = run_command(commands, "run", AGENT, QUESTION, env={})

    assert child.process.returncode == 0, child.told()
    assert "Paris" in "\n".join(child.out)
    steps = [line.split()[1] for line in child.err]
    assert steps == ["run_queued", "run_started", "prompt_assembled", "model_call", "model_response", "terminated"]


def test_a_dry_run_shows_the_prompt_by_layers_and_calls_no_model(commands: ExitStack) -> None:
    child = run_command(commands, "run", AGENT, QUESTION, "--dry-run", env={})

    assert child.process.returncode == 0, child.told()
    told = "\n".join(child.out)
    assert re.search(r"^fingerprint  [0-9a-f]{16}$", told, re.MULTILINE)
    assert re.search(r"^tokens       \d+, of which \d+ in the prefix$", told, re.MULTILINE)
    assert f"[system] {yaml.safe_load((ROOT / AGENT).read_text())['instructions']}" in told
    assert f"[user] {QUESTION}" in told


def test_run_uses_plugins_and_says_why_a_run_did_not_complete(commands: ExitStack, stage: Stage, place: Place) -> None:
    agent = place.path / "agent.yaml"
    agent.write_text("{name: x, instructions: Do as you are told.}")

    child = run_command(commands, "run", str(agent), '[{"text": ""}]', env=stage.env)

    assert child.process.returncode == 1
    assert child.out == []
    assert child.err[-1].startswith("failed: ")
    assert child.err[-1].endswith("[empty_model_output]")


def test_an_agent_file_that_is_wrong_is_refused_with_its_places(commands: ExitStack, place: Place) -> None:
    agent = place.path / "agent.yaml"
    agent.write_text("{name: X Y, instruction: Do.}")

    child = run_command(commands, "run", str(agent), "Hello.", env={})

    assert child.process.returncode == 1
    (line,) = child.refusals
    assert all(part in line for part in ("/name", "/instructions", "/instruction:", "[agent_file_invalid]"))


def test_doctor_finds_a_healthy_deployment_well(commands: ExitStack, deployment: Deployment) -> None:
    child = run_command(commands, "doctor", env=deployment.env)

    assert child.process.returncode == 0, child.told()
    assert [line.split(":")[0] for line in child.out] == ["ok    role", "ok    schema", "ok    clock", "ok    model"]


def test_doctor_names_all_that_is_wrong_and_fails(
    commands: ExitStack, deployment: Deployment, blank_urls: DatabaseUrls
) -> None:
    env = {**deployment.env, "DATABASE_URL": blank_urls.app_url, "RUNWRIGHT_MODEL_PATH": "/absent.gguf"}

    child = run_command(commands, "doctor", env=env)

    assert child.process.returncode == 1
    failed = [line for line in child.out if line.startswith("FAIL")]
    assert [re.findall(r"^FAIL  (\w+): .*\[(\w+)\]$", line) for line in failed] == [
        [("schema", "migrations_pending")],
        [("model", "model_file_missing")],
    ]


def test_doctor_leaves_no_postgres_behind(commands: ExitStack, place: Place, stage: Stage) -> None:
    child = run_command(commands, "doctor", env={**stage.env, **place.env})

    assert child.process.returncode == 1
    assert "FAIL  schema: run: runwright migrate [migrations_pending]" in child.out
    assert not place.has_postgres()


def test_migrations_make_what_the_tables_describe(commands: ExitStack) -> None:
    child = run_command(commands, "migrate", "--check", env={})

    assert child.process.returncode == 0, child.told()
    assert child.out == ["the migrations make the tables that the models describe"]


def test_a_database_of_ones_own_is_migrated_given_keys_and_served(
    commands: ExitStack, template_database: str, blank_urls: DatabaseUrls, stage: Stage
) -> None:
    env = {
        **stage.env,
        "DATABASE_URL": blank_urls.app_url,
        "RUNWRIGHT_ADMIN_DATABASE_URL": blank_urls.admin_url,
        "RUNWRIGHT_SECRET_KEY": "k" * 32,
    }

    migrated = run_command(commands, "migrate", env=env)
    again = run_command(commands, "migrate", env=env)
    created = run_command(commands, "create-keys", "--tenant", "own", env=env)

    assert migrated.out == again.out == ["the database is at this release's schema"]
    keys = dict(line.split() for line in created.out)
    caller = call(commands, start(commands, env).address, keys["service"])
    assert caller.http.get("/me").json()["tenant_id"] == keys["tenant"]
    assert caller.end_of(caller.play(say("Hello.")))["state"] == "completed"
    with closing(Caller(caller.address, keys["approver"])) as approver:
        assert approver.http.post("/runs", json={"agent": "player", "input": "x"}).status_code == 403


def test_migrate_without_the_owners_url_is_refused_by_name(commands: ExitStack, deployment: Deployment) -> None:
    child = run_command(commands, "migrate", env=deployment.env)

    assert child.process.returncode == 1
    assert child.refusals == [
        "runwright: RUNWRIGHT_ADMIN_DATABASE_URL has to name the tables' owner [admin_database_url_missing]"
    ]


def test_the_greeting_has_what_a_newcomer_needs_and_the_database_no_secret(commands: ExitStack, place: Place) -> None:
    service = start(commands, {**place.env, "RUNWRIGHT_ROLE": "api"})

    greeting = dict(line.split(maxsplit=1) for line in service.out)
    assert re.match(r"^default \(ten_\w+\)$", greeting["tenant"])
    assert all(greeting[who].startswith("rw_") for who in ("service", "approver", "operator"))
    assert (place.path / "dev-keys.json").stat().st_mode & 0o777 == 0o600
    assert not any(greeting["service"] in line for line in service.err)
    assert start(commands, {**place.env, "RUNWRIGHT_ROLE": "api"}).out[2:] == service.out[2:]
