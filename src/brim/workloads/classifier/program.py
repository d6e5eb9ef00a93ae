"""The workload ``classifier``: training, planning and measuring what its configuration describes."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brim.data import Loader, Shards
from brim.engine import Trainer
from brim.errors import ConfigError
from brim.workloads.classifier.config import TRAINER_DEFAULTS, ClassifierConfig, DataSection, Source
from brim.workloads.classifier.inputs import InputSpec, input_spec
from brim.workloads.classifier.labels import Classes, LabelReader
from brim.workloads.classifier.loader_choice import LoaderChoice, choose_loader
from brim.workloads.classifier.model import ConvClassifier
from brim.workloads.classifier.sample_fields import SampleFields, choose_fields
from brim.workloads.classifier.samples import classes_in, labelled_samples
from brim.workloads.outcome import JobFacts, Outcome
from brim.workloads.sections import EvalLoaderSection, job_of, show_config, trainer_arguments

MOST_CLASSES_WRITTEN = 1000  # into the configuration of a run; more are found again in the shards


@dataclass(frozen=True)
class ClassifierData:
    """The samples of each split, decoded as they are read; what they are, and which classes there are."""

    train: Shards
    valid: Shards | None
    test: Shards | None
    spec: InputSpec
    classes: Classes


class ClassifierWorkload:
    """The classifier that ``config`` describes. Its shards are opened once, when they are first needed."""

    def __init__(self, config: ClassifierConfig) -> None:
        self.config = config

    @cached_property
    def data(self) -> ClassifierData:
        return open_data(self.config.data)

    @cached_property
    def loader(self) -> LoaderChoice:
        device = self.config.trainer.device  # type: ignore[attr-defined]
        return choose_loader(self.config.train_ds, device, self.data.spec.bytes)

    def read(self) -> JobFacts:
        """Open the shards, and tell what is known before a run."""
        return JobFacts(self._train_loader(False).batch_size)

    def build_trainer(self, whole_batches: bool = False, **changes: Any) -> Trainer:
        """The trainer, but for ``changes`` of its arguments; ``whole_batches`` leaves out a shorter last one."""
        arguments = {**trainer_arguments(self.config.trainer), **changes}
        torch.manual_seed(arguments["seed"])
        data, config = self.data, self.config
        if data.valid is None and data.test is None and arguments["metrics"] == TRAINER_DEFAULTS["metrics"]:
            arguments["metrics"] = None  # nobody has asked for them
        trainer = Trainer(
            self.build_model(),
            self._train_loader(whole_batches),
            self._eval_loader(data.valid, config.valid_ds),
            self._eval_loader(data.test, config.test_ds),
            loss_fn=nn.CrossEntropyLoss(),
            **arguments,
        )
        trainer.config = show_config(self.as_run())
        return trainer

    def build_model(self) -> ConvClassifier:
        """A fresh model for these shards."""
        data, model = self.data, self.config.model
        dtype = str(data.spec.dtype).removeprefix("torch.")
        return ConvClassifier(
            data.classes.names, data.spec.kind, data.spec.shape, data.spec.rate, dtype, **model.model_dump()
        )

    def as_run(self) -> ClassifierConfig:
        """The configuration with what was found out: a run that continues trains the same, on another card too."""
        names = self.data.classes.names
        classes = list(names) if len(names) <= MOST_CLASSES_WRITTEN else self.config.data.classes
        found = {"classes": classes, "sample_rate": self.data.spec.rate or self.config.data.sample_rate}
        batch = {"batch_size": self._train_loader(False).batch_size}
        return self.config.model_copy(
            update={
                "data": self.config.data.model_copy(update=found),
                "train_ds": self.config.train_ds.model_copy(update=batch),
            }
        )

    def run(self, resume: str | Path | None = None) -> Outcome:
        """Train and test."""
        trainer = self.build_trainer()
        names = ", ".join(self.data.classes.names[:8]) + (", ..." if len(self.data.classes) > 8 else "")
        trainer.journal.say(f"{len(self.data.train):,} samples of {len(self.data.classes)} classes ({names})", "data")
        if self.loader.sentence:
            trainer.journal.say(self.loader.sentence, "data")
        if self.data.valid is None and self.data.test is None:
            trainer.journal.warn("nothing says how good it becomes: data.valid and data.test are not named", "data")
        result = trainer.fit(resume=resume)
        trainer.ranks.barrier()  # nobody ends while another is at work: a launcher would take that for a failure
        return Outcome.of(trainer, result)

    def plan_job(self) -> dict[str, Any]:
        """The arguments of `brim.plan` for this training."""
        return job_of(self.build_model(), self._train_loader(False).batch_size, self.config.trainer, _loss)

    def cache_choice(self) -> tuple[bool | None, str]:
        """There is no cache: samples are decoded as they are read."""
        return None, ""

    def _train_loader(self, whole_batches: bool) -> Loader:
        loader = Loader(self.data.train, **self.loader.arguments)
        if whole_batches and self.config.train_ds.drop_last is None and len(self.data.train) >= loader.batch_size:
            loader.drop_last = True
        return loader

    def _eval_loader(self, shards: Shards | None, section: EvalLoaderSection) -> Loader | None:
        if shards is None:
            return None
        # Read as the training data is, by workers that end with the evaluation: two sets of them would be at work.
        read_once = {"shuffle": False, "drop_last": False, "persistent_workers": False}
        return Loader(shards, **{**self.loader.arguments, **read_once, **section.asked})


def _loss(model: Any, batch: Any) -> Any:
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def open_data(section: DataSection) -> ClassifierData:
    """Open the shards of all splits, and find out what is in them."""
    if section.train is None:
        raise ConfigError("data.train=... names the shards to train on; `brim data pack FOLDER OUT` makes some")
    train = _opened(section.train, section)
    fields = choose_fields(train.fields, section.input, section.label)
    label = _label_reader(fields, section)
    spec = input_spec(train, fields, section.size, section.channels, section.sample_rate, section.seconds)
    classes = classes_in(train, label, section.classes)
    if len(classes) < 2:
        raise ConfigError(f"all samples have the label {classes.names[0]!r}; there must be two classes at least")
    augment = tuple(section.augment)
    samples = labelled_samples(train, fields, spec.reader(augment), label, classes)
    valid, test = (_judged(source, section, spec, classes) for source in (section.valid, section.test))
    return ClassifierData(samples, valid, test, spec, classes)


def _judged(source: Source | None, section: DataSection, spec: InputSpec, classes: Classes) -> Shards | None:
    """Samples for an evaluation: nothing in them is drawn at random."""
    if source is None:
        return None
    shards = _opened(source, section)
    fields = choose_fields(shards.fields, section.input, section.label)
    if fields.kind != spec.kind:
        raise ConfigError(f"{source} holds {fields.kind}s ({fields.inputs[0]}), and the training shards {spec.kind}s")
    return labelled_samples(shards, fields, spec.reader(), _label_reader(fields, section), classes)


def _opened(source: Source, section: DataSection) -> Shards:
    return Shards(source, decode=False, on_damage=section.on_damage)


def _label_reader(fields: SampleFields, section: DataSection) -> LabelReader:
    return LabelReader(str(fields.label), section.label_key)
