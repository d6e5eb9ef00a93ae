"""The samples of shards as a classifier takes them: decoded where they are read, with the number of their class."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from brim.data.tar.fields import Decoder
from brim.data.tar.shards import DamagedSample, Shards
from brim.errors import DataError
from brim.workloads.classifier.inputs import Reader
from brim.workloads.classifier.labels import Classes, LabelReader, as_text, classes_of, named_classes
from brim.workloads.classifier.sample_fields import SampleFields

PACKED = "cls"  # the field of the labels that packing makes of folders


@dataclass(frozen=True)
class Labelled:
    """A decoded sample as (what is classified, the number of its class).

    ``packed``: the names of folders by the numbers that packing gave them, which are others where a folder is missing.
    """

    fields: SampleFields
    classes: Classes
    packed: dict[str, str]

    def __call__(self, sample: dict[str, Any]) -> tuple[Tensor, int]:
        label = sample.get(str(self.fields.label))
        if label is None:
            raise DamagedSample(f"lacks the field {self.fields.label}, its label, or it is empty")
        try:
            number = self.classes.number(self.packed.get(label, label))
        except DataError as error:  # a mistake in the settings, and no damage
            raise DataError(f"the sample {sample['__key__']!r}: {error}") from error
        return input_of(sample, self.fields), number


@dataclass(frozen=True)
class Unlabelled:
    """A decoded sample as what is classified alone."""

    fields: SampleFields

    def __call__(self, sample: dict[str, Any]) -> Tensor:
        return input_of(sample, self.fields)


def input_of(sample: dict[str, Any], fields: SampleFields) -> Tensor:
    """What of a sample is classified: the first of the fields that it has."""
    found: Tensor | None = next((sample[field] for field in fields.inputs if field in sample), None)
    if found is None:
        raise DamagedSample(f"has none of the fields {', '.join(fields.inputs)}")
    return found


def labelled_samples(
    shards: Shards, fields: SampleFields, reader: Reader, label: LabelReader, classes: Classes
) -> Shards:
    """The shards as a data set of (what is classified, the number of its class)."""
    decoders: dict[str, Decoder] = {**dict.fromkeys(fields.inputs, reader), label.field: label}
    labelled = Labelled(fields, classes, _packed_names(shards, label, classes))
    return shards.with_fields(decoders, decode=decoders, transform=labelled, may_lack=True)


def _packed_names(shards: Shards, label: LabelReader, classes: Classes) -> dict[str, str]:
    """The names of folders by their numbers; empty where classes are others: those are names of the numbers."""
    names = [as_text(name) for name in shards.classes] if label.field == PACKED else []
    return {str(number): name for number, name in enumerate(names)} if set(names) & set(classes.names) else {}


def unlabelled_samples(shards: Shards, fields: SampleFields, reader: Reader) -> Shards:
    """The shards as a data set of what is classified."""
    decoders = dict.fromkeys(fields.inputs, reader)
    return shards.with_fields(decoders, decode=decoders, transform=Unlabelled(fields), may_lack=True)


def classes_in(shards: Shards, label: LabelReader, given: int | list[str] | None) -> Classes:
    """The classes: as they are set, as the shards were packed with, or those that occur, for which labels are read."""
    if given is not None:
        return named_classes(given)
    if shards.classes and label.field == PACKED:
        return named_classes(shards.classes)
    return classes_of(shards.with_fields([label.field], decode={label.field: label}).column(label.field))
