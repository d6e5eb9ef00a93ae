"""The batch size of a Lightning run from a forecast, in the place of ``BatchSizeFinder`` and its trial runs."""

from typing import Any

from brim.arguments.known import known_arguments
from brim.data.randomness.generators import process_generators
from brim.errors import ConfigError
from brim.hardware.cards import find_card
from brim.integrations.lightning.module_kind import is_overridden
from brim.integrations.lightning.trainer.callback import settings_of
from brim.integrations.lightning.trainer.library import callback_class
from brim.integrations.lightning.trainer.memory_forecast import largest_batch
from brim.record import Journal

Base: Any = callback_class()


class BatchSizeForecast(Base):  # type: ignore[misc]
    """Sets ``batch_size`` of the data module or the module to the largest that fits, before loaders are made.

    Nothing is run on the GPU, no memory is filled until it runs out, and weights and generators stay as they are. The
    loaders have to be made by ``train_dataloader`` of the data module or of the module, from this attribute.

    Args:
        card: the name of the card; None for the one in this machine, or, with a warning, an NVIDIA H200.
        memory: what torch may reserve of it, such as ``"20GiB"``; None for all.
        most: the largest batch size that is wanted; None for whatever fits.
        name: of the attribute, or of the hyperparameter.
    """

    @known_arguments
    def __init__(
        self,
        card: str | None = None,
        memory: str | int | None = None,
        most: int | None = None,
        name: str = "batch_size",
    ) -> None:
        super().__init__()
        if card is not None:
            find_card(card)  # an unknown name is told here
        self.card, self.memory, self.most, self.name = card, memory, most, name
        self.found: int | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        owners = [one for one in (trainer.datamodule, pl_module) if one is not None]
        maker = next((one for one in owners if is_overridden(one, "train_dataloader")), None)
        owner = next((one for one in owners if self._holders(one)), None)
        if maker is None or owner is None:
            raise ConfigError(
                f"there is no {self.name} to set, or no train_dataloader that reads it; give the data module both, or "
                "use brim.integrations.lightning.largest_batch"
            )
        if not trainer.fit_loop._data_source.is_module():  # as BatchSizeFinder asks
            raise ConfigError(
                f"a loader was handed to fit, and a {self.name} set here would not change it; let train_dataloader "
                "make it, or use brim.integrations.lightning.largest_batch"
            )
        with process_generators():
            batch = next(iter(maker.train_dataloader()))
            settings = settings_of(trainer, self.card)
            self.found = largest_batch(pl_module, batch, memory=self.memory, **settings)
        why = "the largest that is forecast to fit"
        if self.most is not None and self.most <= self.found:
            self.found, why = self.most, "the most that was asked for, which is forecast to fit"
        for holder in self._holders(owner):
            holder[self.name] = self.found
        Journal().say(f"{self.name} is {self.found:,}: {why}")

    def _holders(self, owner: Any) -> list[Any]:
        """Where the attribute is kept: in the object, or among its hyperparameters."""
        hyperparameters = getattr(owner, "hparams", {})
        found: list[Any] = [hyperparameters] if self.name in hyperparameters else []
        return [*found, vars(owner)] if self.name in vars(owner) else found
