"""Secrets of tools: named by the operator, good for listed hosts only, and told to nobody.

Security, rule 3: a secret is named, has a list of hosts, and is no environment variable that a template could read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.entities import html5
from typing import Final

from app.errors import ConfigurationError

_PLACE: Final = re.compile(r"\{secret:([a-z0-9_]{1,64})\}")
# What a header may hold (RFC 9110): a line end would begin another one.
_USABLE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_NEVER_ESCAPED: Final = "-._~"
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
        # The longest first: one may be a part of another.
        names = sorted(secrets, key=lambda name: len(secrets[name].value), reverse=True)
        self._written = [(re.compile("".join(map(_any_way, secrets[name].value))), name) for name in names]

    def check(self, template: str, host: str) -> None:
        """Raises ConfigurationError where the template names a secret that is not there or not for this host, or has
        a place that nothing fills."""
        if "{secret" in _PLACE.sub("", template).lower():
            raise ConfigurationError("what looks like one is no place for a secret, which is as in {secret:name}")
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
        for written, name in self._written:
            text = written.sub(f"[secret {name}]", text)
        return text


def _any_way(char: str) -> str:
    """A pattern of one character: as it is, in JSON, in a URL or in HTML, as different libraries escape it."""
    if char.isalnum() or char in _NEVER_ESCAPED:
        return re.escape(char)
    code = ord(char)
    ways = [rf"\\*{re.escape(char)}", rf"\\+u00{code:02x}", f"%{code:02x}", f"&#0*{code};", f"&#x0*{code:x};"]
    ways += [re.escape(f"&{name}") for name, meant in html5.items() if meant == char and name.endswith(";")]
    return f"(?i:{'|'.join(ways)}{'|[+]' if char == ' ' else ''})"
