"""The environment as one frozen value. Every variable is listed in docs/settings.md, which a test holds against this.

Importing this file reads nothing: ``Settings.load`` does.
"""

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from app.agents.definition import ModelName, Name
from app.errors import ConfigurationError
from app.policy import BudgetLimits, CpuPrice, DeadlineConfig, Price, RetryConfig

_PREFIX: Final = "RUNWRIGHT_"
# Read by the installer and by the tests, not by the service.
_FOREIGN: Final = frozenset(
    {"RUNWRIGHT_CACHE_DIR", "RUNWRIGHT_PORTABLE", "RUNWRIGHT_POSTGRES_BIN", "RUNWRIGHT_TEST_SUPERUSER_URL"}
)


# In small letters, without a path, and without the port that the scheme has anyway.
_ORIGIN: Final = re.compile(r"(http(?!.*:80$)|https(?!.*:443$))://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?")


class ProcessRole(StrEnum):
    """What a process does: take requests, drive runs, or both."""

    ALL = "all"
    API = "api"
    WORKER = "worker"


class Settings(BaseSettings):
    """What an operator sets. Times are seconds, sizes are bytes."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, extra="ignore", env_ignore_empty=True)

    data_dir: Path = Field(
        default=Path(".runwright"), description="where the embedded database, keys and server secrets live"
    )
    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8080, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="port of its own for `/metrics`, which is then served nowhere else; 0 takes a free one. Without it "
        "`/metrics` is served beside the rest",
    )
    metrics_host: str | None = Field(
        default=None,
        min_length=1,
        description="address that `/metrics` is served on where it has a port of its own; without it the one for the "
        "rest",
    )
    role: ProcessRole = Field(
        default=ProcessRole.ALL,
        description="`all`, `api` (no runs are driven) or `worker` (only health and metrics are served)",
    )
    database_url: SecretStr | None = Field(
        default=None,
        validation_alias="DATABASE_URL",
        description="a Postgres 15 or newer, as the application's role; without it an embedded one is started",
    )
    admin_database_url: SecretStr | None = Field(
        default=None,
        description="the same database as the tables' owner: for `migrate`, `doctor` and operators' commands",
    )
    listen_database_url: SecretStr | None = Field(
        default=None, description="the same database past a pooler that can't LISTEN"
    )
    allow_owner_role: bool = Field(
        default=False, description="development only: let DATABASE_URL log in as the tables' owner"
    )
    secret_key: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="seals cursors, digests and webhooks; the same in all processes. Without it one is made and kept "
        "in the data directory",
    )
    database_pool_size: int = Field(default=10, ge=1, le=1000, description="connections that one process holds at most")
    model_path: Path | None = Field(default=None, description="a GGUF file; without it the small default model is used")
    default_model: str | None = Field(
        default=None, description="`provider:model` for agents that name none; without it `llama:default`"
    )
    context_tokens: int | None = Field(
        default=None, ge=16, description="the model's window; without it what it was trained for, at most 8,192"
    )
    threads: int | None = Field(
        default=None, ge=1, le=512, description="threads of the model; without it what affinity and quota allow"
    )
    temperature: float = Field(default=0.0, ge=0, le=10, description="sampling of the local model; 0 is greedy")
    top_p: float = Field(default=1.0, gt=0, le=1, description="sampling of the local model, where it is not greedy")
    seed: int | None = Field(default=None, ge=0, le=2**32 - 2, description="with it, equal requests draw alike")
    max_output_tokens: int = Field(
        default=1024, ge=1, description="output tokens of one call of the local model; a budget may say less"
    )
    model_slots: int = Field(default=16, ge=1, le=32, description="requests that the local model answers at once")
    cache_tokens: int | None = Field(
        default=None,
        ge=16,
        description="tokens that all requests to the local model hold together; without it two windows, at most what "
        "the model was trained for and 16,384",
    )
    prefix_store_mib: int = Field(
        default=256, ge=0, le=2**20, description="memory for evaluated beginnings of prompts that nobody uses now"
    )
    snapshot_mib: int = Field(
        default=0,
        ge=0,
        le=2**24,
        description="disk, in the data directory, for the same, so that they are there after a restart; 0: none. They "
        "are prompts in another form",
    )
    deterministic_tokens: int | None = Field(
        default=None, ge=16, description="window of a second context, for requests that must be answered alike"
    )
    plugins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Python files or modules, separated by commas, each with `register(registry)`"
    )
    tools_file: Path | None = Field(
        default=None, description="a YAML file of tools that are requests to services, and of their secrets"
    )
    slots: int = Field(default=16, ge=1, le=1000, description="runs that one worker drives at once")
    lease_seconds: float = Field(
        default=30.0, ge=1, le=3600, description="how long a run stays with a worker that says nothing"
    )
    approval_ttl_seconds: float = Field(
        default=86_400.0,
        gt=0,
        le=10**9,
        description="how long a question to a person stands; an agent may say otherwise",
    )
    max_recoveries: int = Field(default=3, ge=0, le=1000, description="after so many lost workers a run fails")
    drain_seconds: float = Field(
        default=20.0, ge=0, le=3600, description="how long running tools may go on when the process is told to stop"
    )
    budget: BudgetLimits = Field(
        default=BudgetLimits.conservative(),
        description="ceilings of every run, as JSON: dimensions that are left out are open. "
        "Agents and requests can only narrow them",
    )
    deadlines: DeadlineConfig = Field(
        default=DeadlineConfig(), description="default deadlines, as JSON; an agent's own replace them"
    )
    retry: RetryConfig = Field(
        default=RetryConfig(), description="default retries, as JSON; an agent's own replace them"
    )
    prices: dict[ModelName, Price] = Field(
        default={},
        description="what a million tokens cost, as JSON: a model's full name to `input`, `output` and, where it "
        "differs from `input`, `cached`, as texts in one currency. Runs on a model without a price have no cost",
    )
    cpu_prices: dict[ModelName, CpuPrice] = Field(
        default={},
        description="the same for models on own hardware: `cpu_second`, `input_tokens_per_cpu_second` and "
        "`output_tokens_per_cpu_second`, and `cached_tokens_per_cpu_second` where tokens from the cache are not free",
    )
    routes: dict[Name, Annotated[tuple[ModelName, ...], Field(min_length=1, max_length=16)]] = Field(
        default={},
        description="models for agents that name a `task_class`, as JSON: a class to full names, the first choice "
        "first; the others stand in when it fails",
    )
    max_queued_runs: int = Field(default=10_000, ge=1, description="queued runs of one tenant; past it 429")
    max_request_bytes: int = Field(default=1_048_576, ge=1024, description="largest request body; past it 413")
    max_artifact_bytes: int = Field(default=1_048_576, ge=1, le=2**27, description="largest artifact; past it 413")
    request_seconds: float = Field(
        default=30.0,
        ge=0.1,
        le=3600,
        description="how long a request may take to arrive, head and body; past it 408. An answer of which nothing is "
        "taken for so long ends with its connection",
    )
    trusted_proxies: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = Field(
        default=(),
        description="addresses or networks of proxies in front of the service, separated by commas: what one of them "
        "adds to `X-Forwarded-For` is taken for the client's address, by which guesses at keys are counted",
    )
    allowed_networks: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = Field(
        default=(),
        description="private networks that webhooks and tools may be sent to, separated by commas, as in "
        "`10.0.0.0/8`; there without https too. All other addresses have to be of the public internet",
    )
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="origins of web pages that may read the service, separated by commas, as in "
        "`https://dashboard.example`: for CORS and WebSockets. Pages that the service's own origin serves may anyway",
    )
    oidc_issuer: str | None = Field(
        default=None,
        description="address of an OpenID Connect issuer whose tokens are taken beside keys, as its tokens name it in "
        "`iss`; https, or http on this machine",
    )
    oidc_audience: str | None = Field(
        default=None,
        min_length=1,
        validate_default=True,
        description="what the issuer's tokens for this service name in `aud`",
    )
    oidc_jwks_url: str | None = Field(
        default=None, description="where the issuer's public keys are; without it the issuer is asked"
    )
    oidc_tenant_claim: str = Field(
        default="tenant", min_length=1, description="the claim with the id or the name of the tenant"
    )
    oidc_scopes_claim: str = Field(
        default="scope", min_length=1, description="the claim with the scopes, a text with spaces or a list of texts"
    )
    oidc_groups_claim: str = Field(
        default="groups", min_length=1, description="the claim with the groups, a list of texts or one text"
    )
    archive_dir: Path | None = Field(
        default=None,
        description="folder for what is archived before it is erased, the same for all processes; without it nothing "
        "is erased of tenants that want an archive",
    )
    log_level: str = Field(
        default="info", pattern="^(debug|info|warning|error)$", description="`debug`, `info`, `warning` or `error`"
    )

    @classmethod
    def load(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Reads the environment. Raises ConfigurationError ``invalid_settings`` that names each variable that is
        wrong, also one that nobody reads: a misspelt setting must not be a silent default."""
        environment = os.environ if environment is None else environment
        known = {f"{_PREFIX}{name.upper()}" for name in cls.model_fields} | _FOREIGN
        stray = sorted(name for name in environment if name.startswith(_PREFIX) and name not in known)
        if stray:
            raise ConfigurationError(f"nobody reads {', '.join(stray)}", code="invalid_settings")
        try:
            return cls()
        except ValidationError as error:
            problems = [f"{cls._place(p['loc'])}: {p['msg']}" for p in error.errors(include_input=False)]
            raise ConfigurationError("; ".join(problems), code="invalid_settings") from None
        except SettingsError as error:
            # Its cause quotes the value; it names the field only.
            raise ConfigurationError(f"a variable holds no JSON: {error}", code="invalid_settings") from None

    @field_validator("plugins", "trusted_proxies", "allowed_networks", "allowed_origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("allowed_origins")
    @classmethod
    def _check_origins(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        """As browsers write them (RFC 6454): anything else would never be met."""
        for value in values:
            if not _ORIGIN.fullmatch(value):
                raise ValueError(f"{value!r} is no origin as in https://dashboard.example or http://localhost:3000")
        return values

    @field_validator("oidc_issuer", "oidc_jwks_url")
    @classmethod
    def _check_issuer(cls, value: str | None) -> str | None:
        """Keys that come in the clear from somewhere else could be anybody's."""
        if value is None:
            return None
        url = urlsplit(value)
        if url.username is not None or url.query or url.fragment or not url.hostname:
            raise ValueError("must be an address as in https://issuer.example, without a login, query or fragment")
        if url.scheme != "https" and not (url.scheme == "http" and _is_this_machine(url.hostname)):
            raise ValueError("must begin with https://, unless it is of this machine")
        return value

    @field_validator("oidc_audience", mode="after")
    @classmethod
    def _need_audience(cls, value: str | None, told: ValidationInfo) -> str | None:
        if value is None and told.data.get("oidc_issuer") is not None:
            raise ValueError("is needed with an issuer: tokens that it makes for others must not open this service")
        return value

    @field_validator("oidc_audience", "oidc_jwks_url", "oidc_tenant_claim", "oidc_scopes_claim", "oidc_groups_claim")
    @classmethod
    def _need_issuer(cls, value: str | None, told: ValidationInfo) -> str | None:
        assert told.field_name is not None
        is_set = value != cls.model_fields[told.field_name].default
        if is_set and told.data.get("oidc_issuer", "") is None:
            raise ValueError("means nothing without an issuer")
        return value

    @field_validator("metrics_host")
    @classmethod
    def _need_metrics_port(cls, value: str | None, told: ValidationInfo) -> str | None:
        if value is not None and told.data.get("metrics_port", 0) is None:
            raise ValueError("means nothing without a port of its own for the metrics")
        return value

    @field_validator("routes")
    @classmethod
    def _name_once(cls, routes: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for task_class, models in routes.items():
            if len(set(models)) < len(models):
                raise ValueError(f"{task_class} names a model twice")
        return routes

    @classmethod
    def _place(cls, place: tuple[int | str, ...]) -> str:
        """The variable, and where in its JSON."""
        return "/".join([cls.variable(str(place[0])), *map(str, place[1:])])

    @staticmethod
    def variable(field: str) -> str:
        """The environment variable of a field."""
        return "DATABASE_URL" if field.lower() == "database_url" else f"{_PREFIX}{field.upper()}"


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
