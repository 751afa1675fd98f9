"""Finds the provider of a model by its full name, ``provider:model``."""

from collections.abc import Iterable
from dataclasses import replace

from app.errors import ConfigurationError
from app.ports.model import ModelInfo, ModelProvider, Tokenizer


class ModelRouter:
    """The models of a deployment, over any number of providers with different names.

    ``default_model`` is the full name that is meant where none is given.
    """

    def __init__(self, providers: Iterable[ModelProvider], *, default_model: str | None = None) -> None:
        """Raises ConfigurationError where two providers share a name, or ``default_model`` is none that they have."""
        self._providers: dict[str, ModelProvider] = {}
        for provider in providers:
            if provider.name in self._providers:
                raise ConfigurationError(f"two model providers are named {provider.name!r}")
            self._providers[provider.name] = provider
        self.default_model = default_model
        if default_model is not None:
            self.resolve(default_model)

    def resolve(self, model: str | None) -> tuple[ModelProvider, str]:
        """The provider and its own name for the model; None takes the default.

        Raises ConfigurationError that lists the known names.
        """
        full_name = model or self.default_model
        if full_name is None:
            raise ConfigurationError("no model was named, and the deployment has no default model")
        provider_name, colon, own_name = full_name.partition(":")
        provider = self._providers.get(provider_name)
        if provider is None or not colon:
            raise ConfigurationError(f"there is no model {full_name!r}; {self._known_names()}", code="unknown_model")
        if all(info.name != own_name for info in provider.models()):
            raise ConfigurationError(f"there is no model {full_name!r}; {self._known_names()}", code="unknown_model")
        return provider, own_name

    def models(self) -> tuple[ModelInfo, ...]:
        """All models under their full names, provider by provider."""
        return tuple(
            replace(info, name=f"{name}:{info.name}")
            for name, provider in self._providers.items()
            for info in provider.models()
        )

    def tokenizer(self, model: str | None) -> Tokenizer | None:
        """The model's own tokenizer, where it is at hand. Raises as ``resolve`` does."""
        provider, own_name = self.resolve(model)
        return provider.tokenizer(own_name)

    def readiness(self) -> str | None:
        """None when every provider can serve; else the code of the first that can't."""
        codes = (provider.readiness() for provider in self._providers.values())
        return next((code for code in codes if code is not None), None)

    async def close(self) -> None:
        """Closes every provider, also where one of them fails to; the last such failure is raised at the end."""
        failure: Exception | None = None
        for provider in self._providers.values():
            try:
                await provider.close()
            except Exception as error:  # noqa: BLE001 - the others must be closed all the same
                failure = error
        if failure is not None:
            raise failure

    def _known_names(self) -> str:
        names = ", ".join(info.name for info in self.models())
        return f"known are {names}" if names else "no provider has any model"
