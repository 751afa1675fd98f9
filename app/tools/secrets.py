"""Secrets of tools: named by the operator, good for listed hosts only, and told to nobody.

Security, rule 3: a secret is named, has a list of hosts, and is no environment variable that a template could read.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, quote_plus

from app.errors import ConfigurationError

_PLACE: Final = re.compile(r"\{secret:([a-z0-9_]{1,64})\}")
# What a header may hold (RFC 9110): a line end would begin another one.
_USABLE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# A shorter one would be found in ordinary words when answers are cleaned.
MIN_SECRET_CHARS: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Secret:
    """``hosts`` are those to which it may be sent, as URLs name them."""

    value: str = field(repr=False)
    hosts: frozenset[str]


class ToolSecrets:
    """Fills places like ``{secret:name}`` in headers, and takes secrets out of what comes back.

    Raises ConfigurationError for a secret that no header can hold, or that is shorter than eight characters.
    """

    def __init__(self, secrets: Mapping[str, Secret]) -> None:
        for name, secret in secrets.items():
            if not _USABLE.fullmatch(secret.value):
                raise ConfigurationError(f"secret {name!r} is no text that a header can hold")
            if len(secret.value) < MIN_SECRET_CHARS:
                raise ConfigurationError(f"secret {name!r} has fewer than {MIN_SECRET_CHARS} characters")
        self._secrets = dict(secrets)
        written = ((text, name) for name, secret in secrets.items() for text in _ways_to_write(secret.value))
        # The longest first: one may be a part of another.
        self._written = sorted(written, key=_by_length, reverse=True)

    def check(self, template: str, host: str) -> None:
        """Raises ConfigurationError where the template names a secret that is not there or not for this host."""
        for name in _PLACE.findall(template):
            secret = self._secrets.get(name)
            if secret is None:
                raise ConfigurationError(f"there is no secret {name!r}")
            if host not in secret.hosts:
                raise ConfigurationError(f"secret {name!r} may not be sent to {host}")

    def fill(self, template: str) -> str:
        """The template with its secrets, after ``check``."""
        return _PLACE.sub(lambda place: self._secrets[place[1]].value, template)

    def remove(self, text: str) -> str:
        """The text without any secret in it: who is asked may say it again."""
        for value, name in self._written:
            text = text.replace(value, f"[secret {name}]")
        return text


def _ways_to_write(value: str) -> frozenset[str]:
    """As it is, in JSON, and in a URL."""
    return frozenset({value, json.dumps(value)[1:-1], quote(value, safe=""), quote_plus(value)})


def _by_length(item: tuple[str, str]) -> int:
    return len(item[0])
