"""One trial: a seed, a folder, and what can be done with trainings in it."""

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from soaking.child import Child, alive_in, fork, start_fresh
from soaking.mischief import Mischief
from soaking.outcome import WentWrong, require
from soaking.recipe import Recipe
from soaking.training import Counts, counts_of, train

ORPHANS_END = 10.0  # seconds; loader processes look for their parent once a second


@dataclass
class Trial:
    """``kind`` says what is tried, for the summary; ``recipe`` what was trained, for whoever looks into a failure."""

    name: str
    number: int
    folder: Path
    random: Random
    kind: str = ""
    recipe: Recipe | None = None
    children: list[Child] = field(default_factory=list)

    @property
    def straight(self) -> Path:
        """Where the training is that nothing happens to."""
        return self.folder / "straight"

    @property
    def tried(self) -> Path:
        """Where the training is that is interfered with."""
        return self.folder / "tried"

    def start(self, recipe: Recipe, folder: Path, mischief: Mischief | None = None, fresh: bool = False) -> Child:
        """A process that trains in ``folder``, or goes on with the training there."""
        self.recipe = recipe
        folder.mkdir(parents=True, exist_ok=True)
        child = start_fresh(recipe, folder) if fresh else fork(partial(train, recipe, folder, mischief))
        self.children.append(child)
        return child

    def train(self, recipe: Recipe, folder: Path, mischief: Mischief | None = None, code: int = 0) -> str:
        """Train to the end, which must be ``code``; what was said on the way."""
        child = self.start(recipe, folder, mischief)
        ended = child.wait()
        require(ended == code, f"ended with {ended} where {code} was expected\n{child.words()}")
        return child.words(20_000)

    def measure(self, recipe: Recipe) -> Counts:
        """The training that nothing happens to, and how many moments it has."""
        self.train(recipe, self.straight)
        return counts_of(self.straight)

    def finish(self, recipe: Recipe, folder: Path) -> str:
        """Go on with a training until it is done."""
        return self.train(recipe, folder)

    def wait_for_orphans(self) -> None:
        """Processes that trainings leave behind end by themselves, or it is a failure."""
        deadline = time.monotonic() + ORPHANS_END
        for child in self.children:
            while left := alive_in(child.pid):
                if time.monotonic() > deadline:
                    raise WentWrong(f"processes outlived the training that started them: {', '.join(left)}")
                time.sleep(0.05)

    def end(self) -> None:
        """Whatever happened, no process is left."""
        for child in self.children:
            child.close()
