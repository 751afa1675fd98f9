"""deploy/alerts.yml: rules that Prometheus takes, that fire for their cause and name figures that there are."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.observability import Metrics
from app.ports.records import Snapshot
from tests.deploy.conftest import PROJECT

RULES = PROJECT / "deploy" / "alerts.yml"
CASES = Path(__file__).with_name("alerts_test.yml")
OF_PROMETHEUS = {"up"}


def read_rules(kind: str) -> Sequence[Mapping[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def name_series(metrics: Metrics) -> set[str]:
    told = metrics.render(Snapshot(runs_by_state={}, oldest_queued_seconds=0.0))[0].decode()
    # Families without samples, and the series of histograms.
    return {*re.findall(r"^# TYPE (\w+)", told, re.MULTILINE), *re.findall(r"^(\w+)", told, re.MULTILINE)}


ALERTS = read_rules("alert")
RECORDED = read_rules("record")


def read_cases(*, with_cause: bool) -> set[str]:
    cases = yaml.safe_load(CASES.read_text())["tests"]
    found = [alert for case in cases for alert in case.get("alert_rule_test", ())]
    return {alert["alertname"] for alert in found if ("exp_alerts" in alert) is with_cause}


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.external
def test_prometheus_accepts_the_rules(promtool: str) -> None:
    assert run(promtool, "check", "rules", RULES) == ""


@pytest.mark.external
def test_every_case_ends_as_it_says(promtool: str) -> None:
    assert run(promtool, "test", "rules", CASES) == ""


@pytest.mark.parametrize("with_cause", [True, False])
def test_every_alert_is_seen_with_its_cause_and_without_it(with_cause: bool) -> None:
    assert {alert["alert"] for alert in ALERTS} - read_cases(with_cause=with_cause) == set()


@pytest.mark.parametrize("rule", [*ALERTS, *RECORDED], ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_names_figures_that_there_are(rule: Mapping[str, Any]) -> None:
    labels_and_functions = re.sub(r"\{[^}]*\}|\b(?:by|ignoring|on) \([^)]*\)|\[[^]]*\]", "", rule["expr"])
    named = set(re.findall(r"\b(?:runwright[a-z0-9_:]*|up)\b", labels_and_functions))
    assert named
    assert named - name_series(Metrics()) - {rule["record"] for rule in RECORDED} - OF_PROMETHEUS == set()


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_how_bad_it_is_and_what_is_wrong(alert: Mapping[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["annotations"]["summary"].endswith(".")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_the_page_on_metrics_says_what_an_alert_means(alert: Mapping[str, Any]) -> None:
    assert f"| `{alert['alert']}` |" in (PROJECT / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_the_page_names_no_alert_that_there_is_not() -> None:
    page = (PROJECT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(Runwright\w+)`", page)) == {alert["alert"] for alert in ALERTS}


def test_prometheus_of_the_compose_file_loads_the_rules() -> None:
    config = yaml.safe_load((PROJECT / "deploy" / "prometheus.yml").read_text())
    compose = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())
    assert config["rule_files"] == [RULES.name]
    assert f"./deploy/{RULES.name}:/etc/prometheus/{RULES.name}:ro" in compose["services"]["prometheus"]["volumes"]
