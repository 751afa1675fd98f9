"""Who may decide about a call: rules of a tenant by agent, tool and group, and the rule of two persons. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Names = Annotated[tuple[_Name, ...], Field(max_length=200)]


class ApproverRule(BaseModel):
    """About calls of these agents and tools (None: of any) decide these subjects and members of these groups (neither
    named: anybody who may decide at all). ``approvals``: how many different persons have to approve."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agents: _Names | None = None
    tools: _Names | None = None
    subjects: _Names = ()
    groups: _Names = ()
    approvals: Literal[1, 2] = 1

    @model_validator(mode="after")
    def _says_something(self) -> "ApproverRule":
        if not self.subjects and not self.groups and self.approvals == 1:
            raise ValueError("a rule names subjects or groups, or asks for two approvals")
        if () in (self.agents, self.tools):
            raise ValueError("a rule about no agent or no tool never holds")
        return self

    def covers(self, *, agent: str, tool: str) -> bool:
        return (self.agents is None or agent in self.agents) and (self.tools is None or tool in self.tools)

    def admits(self, *, subject: str, groups: Collection[str]) -> bool:
        is_open = not self.subjects and not self.groups
        return is_open or subject in self.subjects or not set(self.groups).isdisjoint(groups)


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """What the rules ask of a decision about one call. Every rule that covers the call has to admit who decides."""

    rules: tuple[ApproverRule, ...]

    @property
    def approvals(self) -> int:
        return max((rule.approvals for rule in self.rules), default=1)

    def admits(self, *, subject: str, groups: Collection[str]) -> bool:
        return all(rule.admits(subject=subject, groups=groups) for rule in self.rules)


def requirement(rules: Sequence[ApproverRule], *, agent: str, tool: str) -> Requirement:
    """The rules that cover a call."""
    return Requirement(rules=tuple(rule for rule in rules if rule.covers(agent=agent, tool=tool)))
