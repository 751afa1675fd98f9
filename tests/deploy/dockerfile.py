"""As much of a Dockerfile as our own uses: instructions with continued lines, comments, stages."""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction; ``stage`` counts from 0."""

    stage: int
    name: str
    rest: str


def read_instructions(path: Path) -> list[Instruction]:
    """The file's instructions in order, each on one line, without comments."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    stages = [sum(name == "FROM" for name, _ in pairs[: index + 1]) - 1 for index in range(len(pairs))]
    return [
        Instruction(stage=stage, name=name, rest=rest.strip())
        for stage, (name, rest) in zip(stages, pairs, strict=True)
    ]


def as_script(instructions: list[Instruction], context: Path) -> str:
    """The instructions as a shell script for the current folder, which stands for WORKDIR.

    Left out is what only a new machine may have done to it: apt-get.
    """
    return "\n".join(["set -eux", *(as_shell(instruction, context) for instruction in instructions)])


def as_shell(instruction: Instruction, context: Path) -> str:
    """What the instruction does, for a shell; a comment where it does nothing."""
    if instruction.name == "ENV":
        return f"export {instruction.rest}"
    if instruction.name == "ARG":
        name, _, default = instruction.rest.partition("=")
        return f'export {name}="${{{name}:-{default}}}"'
    if instruction.name == "COPY":
        *sources, into = instruction.rest.split()
        copied = " ".join(f"'{context}/{source}'" for source in sources)
        return f"mkdir -p '{into}' && cp -R {copied} '{into}'"
    if instruction.name == "RUN" and "apt-get" not in instruction.rest:
        return instruction.rest
    return f": not run here: {instruction.name}"
