"""docker-compose.yml against the published Compose schema, and what the schema can't know."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

SERVICES = ["postgres", "migrate", "runwright", "prometheus"]


@pytest.fixture
def services(project: Path) -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((project / "docker-compose.yml").read_text())["services"]
    return services


def test_the_file_meets_the_published_schema(project: Path) -> None:
    # check-jsonschema carries compose-spec/compose-spec's schema, so it is pinned by dev.lock and renewed with it.
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [*command, project / "docker-compose.yml"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_services_are_the_database_the_migration_the_service_and_its_metrics(services: dict[str, Any]) -> None:
    assert list(services) == SERVICES


def test_the_service_logs_in_as_the_role_that_row_security_holds(services: dict[str, Any]) -> None:
    environment = services["runwright"]["environment"]
    assert list(environment) == ["DATABASE_URL"]
    assert environment["DATABASE_URL"].startswith("postgresql://runwright_app:")


def test_only_the_migration_logs_in_as_the_owner(services: dict[str, Any]) -> None:
    environment = services["migrate"]["environment"]
    assert list(environment) == ["RUNWRIGHT_ADMIN_DATABASE_URL"]
    assert environment["RUNWRIGHT_ADMIN_DATABASE_URL"].startswith("postgresql://runwright_owner:")


def test_the_service_starts_when_the_migration_has_ended_well(services: dict[str, Any]) -> None:
    assert services["runwright"]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    assert services["migrate"]["restart"] == "no"


@pytest.mark.parametrize("name", ["postgres", "prometheus"])
def test_an_image_of_others_has_a_full_version_and_a_health_check(services: dict[str, Any], name: str) -> None:
    assert re.search(r":v?\d+\.\d+", services[name]["image"])
    assert services[name]["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("name", SERVICES)
def test_no_port_is_open_to_other_machines(services: dict[str, Any], name: str) -> None:
    ports = services[name].get("ports", [])
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_every_file_that_is_mounted_exists(services: dict[str, Any], project: Path) -> None:
    mounts = [mount for service in services.values() for mount in service.get("volumes", []) if mount[0] == "."]
    assert len(mounts) == 3
    assert [mount for mount in mounts if not (project / mount.split(":")[0]).is_file()] == []


def test_every_secret_is_in_the_example_and_must_be_set(project: Path) -> None:
    asked = re.findall(r"\$\{(\w+)(.*?)\}", (project / "docker-compose.yml").read_text())
    documented = re.findall(r"^(\w+)=$", (project / "deploy" / "compose.env.example").read_text(), re.MULTILINE)
    assert {name for name, _ in asked} == set(documented)
    assert {rest for _, rest in asked} == {":?is missing in .env"}


def test_metrics_are_scraped_from_the_services_port(services: dict[str, Any], project: Path) -> None:
    scraped = yaml.safe_load((project / "deploy" / "prometheus.yml").read_text())["scrape_configs"]
    assert [config["static_configs"][0]["targets"] for config in scraped] == [["runwright:8080"]]
    assert services["runwright"]["ports"][0].endswith(":8080")


@pytest.mark.external
def test_prometheus_accepts_its_configuration(promtool: str, project: Path) -> None:
    command = [promtool, "check", "config", str(project / "deploy" / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
