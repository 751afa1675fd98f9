"""The operator's file of tools: secrets by name, and tools that are requests to services."""

from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.agents.definition import Name
from app.errors import ConfigurationError
from app.tools import ToolRegistry
from app.tools.http import HttpTool, HttpToolDefinition, Sender
from app.tools.secrets import Secret, ToolSecrets

_MAX_SECRET_CHARS: Final = 16_384


class SecretDefinition(BaseModel):
    """``file`` holds the secret and nothing else; a relative one lies beside the file of tools."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: Path
    hosts: frozenset[Annotated[str, Field(min_length=1, max_length=253)]] = Field(min_length=1, max_length=100)


class ToolsFile(BaseModel):
    """What the file says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    secrets: dict[Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")], SecretDefinition] = Field(default={})
    tools: dict[Name, HttpToolDefinition] = Field(default={})


class _StrictLoader(yaml.SafeLoader):
    """Refuses a name that stands twice, of which the other would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.constructor.ConstructorError(None, None, "a name stands twice", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def load_tools(path: Path, registry: ToolRegistry, sender: Sender) -> None:
    """Registers the file's tools. Raises ConfigurationError, which names the file and the place, and no secret."""
    try:
        found = ToolsFile.model_validate(_read(path) or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigurationError(f"{path}: {place}: {first['msg']}") from None
    secrets = {name: _load_secret(path, name, definition) for name, definition in found.secrets.items()}
    try:
        known = ToolSecrets(secrets)
        for name, definition in found.tools.items():
            tool = HttpTool(name=name, definition=definition, sender=sender, secrets=known)
            registry.register(tool.to_tool())
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _read(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)  # noqa: S506 - a safe loader
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} can't be read: {type(error).__name__}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", line {mark.line + 1}"
        problem = getattr(error, "problem", None) or "no YAML"
        raise ConfigurationError(f"{path}{where}: {problem}") from None


def _load_secret(path: Path, name: str, definition: SecretDefinition) -> Secret:
    place = path.parent / definition.file
    try:
        with place.open(encoding="utf-8") as file:
            value = file.read(_MAX_SECRET_CHARS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: secret {name!r} can't be read: {type(error).__name__}") from None
    if len(value) > _MAX_SECRET_CHARS:
        raise ConfigurationError(f"{path}: secret {name!r} has more than {_MAX_SECRET_CHARS} characters")
    # Most editors end a file's last line.
    return Secret(value=value.removesuffix("\n").removesuffix("\r"), hosts=definition.hosts)
