"""What a trained classifier says of new samples: of shards, or of plain files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from brim.data import DamagedSample, Loader, Shards
from brim.errors import ConfigError, DataError
from brim.workloads.classifier.model import ConvClassifier
from brim.workloads.classifier.sample_fields import EXTENSIONS, choose_fields
from brim.workloads.classifier.samples import unlabelled_samples

TAR = ".tar"


@dataclass(frozen=True)
class Classified:
    """The most probable classes of one sample with their probabilities, the best first."""

    name: str
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]


def classify(
    model: ConvClassifier, source: str | Path | Sequence[str | Path], k: int = 1, batch_size: int = 32, **fields: Any
) -> Iterator[Classified]:
    """The ``k`` most probable classes of each sample, in order.

    Args:
        model: a trained one, such as ``brim.load(RUN)``.
        source: shards (a folder, a pattern, a list of .tar files), or files and folders of pictures or sounds.
        k: how many classes of each.
        batch_size: samples at once.
        fields: ``input="jpg"``, where shards hold several pictures a sample.

    Raises:
        DataError: for a sample that cannot be read, by its name.

    >>> for found in classify(brim.load("runs/shapes"), "photos/"):  # doctest: +SKIP
    ...     print(found.name, found.classes[0], found.probabilities[0])
    """
    if k < 1:
        raise ConfigError(f"k={k} must be a whole number of at least 1")
    named = _of_files(model, source) if _are_files(source) else _of_shards(model, source, **fields)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        while batch := list(islice(named, batch_size)):
            with torch.inference_mode():
                inputs = torch.stack([one for _, one in batch]).to(device)
                best = model(inputs).float().softmax(1).topk(min(k, len(model.classes)), 1)
            rows = zip(batch, best.indices.tolist(), best.values.tolist(), strict=True)
            for (name, _), numbers, values in rows:
                yield Classified(name, tuple(model.classes[number] for number in numbers), tuple(values))
    finally:
        model.train(was_training)


def _are_files(source: Any) -> bool:
    """Whether these are plain files, or a folder of them, and not shards."""
    if not isinstance(source, str | Path):
        return not any(str(part).endswith(TAR) or "{" in str(part) for part in source)
    path = Path(source).expanduser()
    return (path.is_dir() and not any(path.glob(f"*{TAR}"))) or (path.is_file() and path.suffix.lower() != TAR)


def _of_shards(model: ConvClassifier, source: Any, input: str | None = None) -> Iterator[tuple[str, Tensor]]:
    shards = Shards(source, decode=False)
    fields = choose_fields(shards.fields, input, None, wants_label=False)
    if fields.kind != model.spec.kind:
        raise ConfigError(f"{source} holds {fields.kind}s ({fields.inputs[0]}), and the model takes {model.spec.kind}s")
    samples = unlabelled_samples(shards, fields, model.spec.reader())
    batches = Loader(samples, shuffle=False, num_workers=0)
    inputs = chain.from_iterable(batches)
    return ((samples.key(number), one) for number, one in enumerate(inputs))


def _of_files(model: ConvClassifier, source: Any) -> Iterator[tuple[str, Tensor]]:
    parts = [source] if isinstance(source, str | Path) else source
    known, reader = EXTENSIONS[model.spec.kind], model.spec.reader()
    files = [path for path in chain.from_iterable(map(_files, parts)) if path.suffix.lower()[1:] in known]
    if not files:
        raise DataError(f"there is no {model.spec.kind} ({', '.join(known)}) in {', '.join(map(str, parts[:3]))}")
    for path in files:
        try:
            yield str(path), reader(memoryview(path.read_bytes()))
        except (DataError, DamagedSample):
            raise
        except Exception as error:  # of a decoder, on bytes of anybody's
            raise DataError(f"{path} cannot be decoded: {type(error).__name__}: {error}") from error


def _files(part: str | Path) -> Iterator[Path]:
    path = Path(part).expanduser()
    if not path.exists():
        raise DataError(f"there is no file or folder {path}; name pictures, sounds, or shards")
    return (file for file in sorted(path.rglob("*")) if file.is_file()) if path.is_dir() else iter([path])
