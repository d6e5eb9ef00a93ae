"""All faults, each in its turn."""

from soaking import faults_of_data, faults_of_memory, faults_on_disk
from soaking.trial import Trial

FAULTS = {**faults_on_disk.FAULTS, **faults_of_data.FAULTS, **faults_of_memory.FAULTS}


def fault(trial: Trial) -> None:
    """The fault whose turn it is by the number of the trial; all else is random."""
    trial.kind = list(FAULTS)[trial.number % len(FAULTS)]
    FAULTS[trial.kind](trial)
