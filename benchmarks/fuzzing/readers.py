"""All readers, by name."""

from fuzzing import data_readers, run_readers
from fuzzing.reader import Reader

READERS: dict[str, Reader] = {**run_readers.READERS, **data_readers.READERS}
