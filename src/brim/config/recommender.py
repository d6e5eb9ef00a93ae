"""The configuration of the recommender."""

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from brim.workloads.recommender.interactions import check_split_ratio
from brim.workloads.recommender.losses import LossName
from brim.workloads.sections import EvalLoaderSection, EvalSection, Section, TrainerSection, TrainSection


class DataSection(Section):
    """``data``: which interactions to train on."""

    name: Literal["embedded", "ml-1m", "recbole"] = Field(
        "embedded", description="brim's own data set; from path: MovieLens-1M, or RecBole's atomic files"
    )
    path: str | None = Field(None, description="folder of the data; brim data ml-1m says how to get MovieLens-1M")
    min_rating: int | None = Field(None, ge=1, description="ratings of at least so many stars count")
    split_files: str | None = Field(None, description="folder with train.tsv, validation.tsv, test.tsv")
    n_users: int = Field(1500, ge=1, le=100_000, description="people in the embedded data set")
    n_items: int = Field(2000, ge=30, le=10_000, description="movies in the embedded data set")
    split_ratio: list[float] = Field([0.8, 0.1, 0.1], description="shares of train, validation and test of each user")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of the embedded data set and of the split")

    @field_validator("split_ratio")
    @classmethod
    def check_shares(cls, ratio: list[float]) -> list[float]:
        check_split_ratio(ratio)
        return ratio

    @model_validator(mode="after")
    def check_effect(self) -> "DataSection":
        """Refuse what would be left aside without a word: a run on the embedded data for one on the user's own."""
        if self.name == "embedded" and (idle := _changed(self, ("path", "min_rating", "split_files"))):
            raise ValueError(
                f"{' and '.join(idle)} would do nothing for the embedded data; add name=recbole for RecBole's atomic "
                "files, or name=ml-1m for MovieLens-1M"
            )
        if self.split_files is not None and (idle := _changed(self, ("min_rating", "split_ratio"))):
            raise ValueError(
                f"split_files has chosen the pairs and split them, so {' and '.join(idle)} would do nothing"
            )
        return self


def _changed(section: Section, names: Iterable[str]) -> list[str]:
    """The settings among ``names`` that are other than usual; a run's own configuration holds all of them."""
    return [name for name in names if getattr(section, name) != type(section).model_fields[name].default]


OF_MODELS = {  # settings that one kind of model alone has
    "history": ("temperature", "popularity", "hidden_share"),
    "linear": ("regularisation", "denoising", "user_power", "discount", "text_weight"),
}
READ_ONCE = ("history", "linear")  # models that read each text before they are made, and never again


class ModelSection(Section):
    """``model``: what is trained."""

    name: Literal["gpt2", "bpr", "history", "linear"] = Field(
        "gpt2",
        description="ids and texts read by GPT-2; ids alone; people by what they watched, and texts; the closed form",
    )
    embed_dim: int = Field(64, ge=1, le=65_536, description="width of the embeddings")
    gpt2: str = Field("tiny", description="tiny (random weights, offline), a local folder, a GGUF file or a hub name")
    pooling: Literal["auto", "mean", "last", "cls"] = Field("auto", description="a text's vector, from its tokens")
    lora: int | dict[str, Any] | None = Field(None, description="rank of adapters, or arguments of peft.LoraConfig")
    encodings_dir: str | None = Field("auto", description="where encodings are kept for other runs; null for nowhere")
    tokens_at_once: int | None = Field(None, ge=1, description="tokens read at once by an encoder that is trained")
    use_cache: bool = Field(True, description="encode every text once and keep it on the device")
    freeze_gpt2: bool = Field(True, description="GPT-2 is not trained")
    hidden_dim: int = Field(128, ge=1, le=65_536, description="width of the MLP over encodings")
    loss: LossName | None = Field(None, description="bpr, softmax over all items or sampled_softmax; history: softmax")
    control: Literal["ids", "random"] | None = Field(
        None, description="of history and linear: no texts, or random vectors instead"
    )
    temperature: float = Field(6.0, gt=0, le=1000, description="of history: how far taste can move a score")
    popularity: float = Field(1.0, ge=0, le=10, description="of history: how much popularity counts at first")
    hidden_share: float = Field(0.6, gt=0, lt=1, description="of history: share of what people watched to be guessed")
    regularisation: float = Field(500.0, gt=0, description="of linear: added to how often each item occurs")
    denoising: float = Field(1.5, ge=0, description="of linear: so many times an item's own count more")
    user_power: float = Field(1.0, ge=0, le=10, description="of linear: whoever watched much counts less")
    discount: float = Field(0.15, ge=0, le=10, description="of linear: scores by an item's count to this power")
    text_weight: float = Field(60.0, ge=0, description="of linear: people that the likeness of texts is worth")

    @model_validator(mode="after")
    def check_effect(self) -> "ModelSection":
        for name, own in OF_MODELS.items():
            if self.name != name and (idle := _changed(self, own)):
                raise ValueError(f"{' and '.join(idle)} would do nothing for name={self.name}, but for name={name}")
        return self

    @model_validator(mode="after")
    def check_loss(self) -> "ModelSection":
        if self.name == "linear" and self.loss is not None:
            raise ValueError(f"loss={self.loss} is not one of linear's, which is solved for squares; leave it out")
        if self.name == "history" and self.loss not in (None, "softmax"):
            raise ValueError(f"loss={self.loss} is not one of history's; leave it out: it is trained with softmax")
        if self.name in READ_ONCE and not (self.lora is None and self.freeze_gpt2 and self.use_cache):
            raise ValueError(
                f"{self.name} reads each text once, with a frozen encoder: leave lora, freeze_gpt2 and use_cache out, "
                "or take name=gpt2"
            )
        if self.name not in READ_ONCE and self.control is not None:
            raise ValueError(f"control={self.control} is of name=history and name=linear; the ids alone are name=bpr")
        return self


class StageSection(Section):
    """One of ``stages``: what is left empty is as ``model`` and ``trainer`` have it."""

    epochs: int = Field(ge=1, description="passes over the training data, at most")
    use_cache: bool | None = Field(None, description="encode every text once and keep it on the device")
    freeze_gpt2: bool | None = Field(None, description="GPT-2 is not trained")
    lr: float | None = Field(None, gt=0, description="learning rate of all but the encoder")
    encoder_lr: float | None = Field(None, gt=0, description="learning rate of the encoder; as lr unless given")


class RecommenderConfig(Section):
    """Everything that decides a run of the recommender."""

    workload: Literal["recommender"] = "recommender"
    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    train_ds: TrainSection = TrainSection()
    eval_ds: EvalSection = EvalSection()
    valid_ds: EvalLoaderSection = EvalLoaderSection()
    test_ds: EvalLoaderSection = EvalLoaderSection()
    stages: list[StageSection] = Field([], description="one run in stages, instead of trainer.epochs")
    trainer: TrainerSection = Field(default_factory=lambda: TrainerSection(**TRAINER_DEFAULTS))  # type: ignore[valid-type]

    @model_validator(mode="after")
    def check_stages(self) -> "RecommenderConfig":
        check_stages(self)
        return self

    @model_validator(mode="after")
    def check_solved(self) -> "RecommenderConfig":
        """Nothing is trained in the closed form, so a setting of a training would be one without effect."""
        usual = TrainerSection(**TRAINER_DEFAULTS)
        without = {name for name, value in usual if getattr(self.trainer, name) != value} - OF_SOLVING
        if self.model.name == "linear" and (without or self.train_ds != TrainSection()):
            named = ", ".join(f"trainer.{name}" for name in sorted(without)) or "train_ds"
            raise ValueError(f"model.name=linear is solved, not trained, so {named} would do nothing; leave it out")
        return self

    @model_validator(mode="after")
    def count_people(self) -> "RecommenderConfig":
        """A batch of history is of people, who are fewer than pairs."""
        if self.model.name == "history" and "batch_size" not in self.train_ds.model_fields_set:
            self.train_ds = self.train_ds.model_copy(update={"batch_size": PEOPLE_AT_ONCE})
        return self


PEOPLE_AT_ONCE = 256
OF_SOLVING = {"device", "seed", "run_dir"}  # settings of the trainer that the closed form has a use for
# What this workload wants other than the trainer's own defaults.
TRAINER_DEFAULTS: dict[str, Any] = {"epochs": 60, "lr": 3e-3, "patience": 5}


def check_stages(config: RecommenderConfig) -> None:
    """Refuse what cannot be trained, or would be trained otherwise than it reads."""
    model, trainer = config.model, config.trainer
    frozen = [model.freeze_gpt2 if one.freeze_gpt2 is None else one.freeze_gpt2 for one in config.stages]
    if model.name == "gpt2" and model.lora is not None and all(frozen or [model.freeze_gpt2]):
        raise ValueError(
            "model.lora adds adapters that would never be trained: set freeze_gpt2: false and use_cache: false, in "
            "model or in one of the stages"
        )
    if not config.stages:
        return
    if model.name != "gpt2":
        raise ValueError(f"stages are of model.name=gpt2, and this run has model.name={model.name}: leave them out")
    total, epochs = sum(one.epochs for one in config.stages), trainer.epochs  # type: ignore[attr-defined]
    if epochs not in (total, TRAINER_DEFAULTS["epochs"]):
        raise ValueError(f"trainer.epochs={epochs} contradicts stages, which have {total} in all; leave it out")
    if trainer.max_steps is not None:  # type: ignore[attr-defined]
        raise ValueError("stages are counted in epochs, so trainer.max_steps cannot be used with them; leave it out")
    if trainer.scheduler not in (None, "constant"):  # type: ignore[attr-defined]
        raise ValueError("stages have learning rates of their own, so trainer.scheduler must be left out")
