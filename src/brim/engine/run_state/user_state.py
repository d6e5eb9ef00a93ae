"""Python state of a loss or a model that moves while a run goes on: a counter, an annealed weight, past losses.

It is in no ``state_dict()``, so a resumed run would begin anew with what the script builds. What is plain data is saved
and put back, where the script builds what the run began with; what is not is told, when it is seen to move and when a
run is resumed without it.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import nn

from brim.engine.run_state.unsaved_state import UnsavedState, codes_in
from brim.engine.sandbox.holders import NAMES, Holder, StateDictHolder, find_holders
from brim.engine.sandbox.names_read import names_read
from brim.engine.sandbox.places import ITERATORS
from brim.engine.sandbox.python_state import FUNCTIONS, NO_OBJECTS, ONE_WAY, OPAQUE
from brim.engine.sandbox.users_code import package_of
from brim.engine.state.host_copy import bytes_of, host_copy
from brim.engine.state.plain_value import CannotKeep, from_plain, to_plain
from brim.engine.state.seen_value import SeenValue, see, see_iterator
from brim.errors import some_of

Place = tuple[str, str]  # a holder's label, and a name in it
Saved = dict[str, Any]  # what a checkpoint holds of one rank
ABSENT = "absent"
SHOWN = 4  # names in a sentence
SMALL = 1 << 20  # bytes of a tensor whose value at the start is kept, to go back to
ONE_WAY_ITERATORS = tuple(kind for kind in (*ONE_WAY, *ITERATORS) if kind is not itertools.count)
# Nobody's training state, or somebody else's: parameters are the optimizer's, modules are looked at by themselves.
IGNORED = (nn.Parameter, nn.Module, type, torch.device, torch.dtype, *FUNCTIONS, *NO_OBJECTS)
INSTEAD = "keep it in a buffer, in get_extra_state of a module, or in a callback with state_dict and load_state_dict"


@dataclass(frozen=True)
class _Look:
    """All values at one moment."""

    holders: dict[str, Holder]
    codes: list[CodeType]
    seen: dict[Place, SeenValue]

    def without_records(self, moved: dict[Place, SeenValue], readers: Sequence[CodeType]) -> dict[Place, SeenValue]:
        """What somebody reads: the rest is written for the user to look at, and nothing depends on it."""
        if not moved:
            return moved
        read = names_read([*self.codes, *readers])
        keys = {place: self.holders[place[0]].key(place[1]) for place in moved}
        return {place: one for place, one in moved.items() if keys[place] is None or keys[place] in read}


class UserState:
    """What a run began with, and what has become of it.

    ``but_for``: objects that a checkpoint has anyway. ``readers``: others that may depend on it: data, callbacks.
    ``say`` hears what is put back.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Any,
        device: torch.device,
        but_for: Iterable[Any] = (),
        readers: Iterable[Any] = (),
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._loss_fn, self._device, self._say = loss_fn, device, say
        self._but_for = [one for one in but_for if one is not None]
        self._readers = list(codes_in(readers))
        self._of_readers = UnsavedState(readers, self._but_for)
        seen = self._look(model).seen
        self._start = {place: one.without_content() for place, one in seen.items()}
        self._began_with = {
            place: host_copy(one.plain) for place, one in seen.items() if one.is_plain and bytes_of(one.plain) <= SMALL
        }
        self._before: dict[Place, SeenValue] | None = None  # at the save before
        self._told: set[str] = set()

    def take(self, model: nn.Module) -> Saved:
        """What a checkpoint of now holds: values that have moved, each with the digest of what the run began with
        there and its own, and the names of those that are no data.

        An object of which one value cannot be kept is left whole: a length without the table that it is of is worse.
        """
        now = self._look(model)
        moved = {place: one for place, one in now.seen.items() if not one.is_same(self._start.get(place))}
        moved = now.without_records(moved, self._readers)
        broken = {_whole(place) for place, one in moved.items() if not one.is_plain}
        unsaved = [place for place, one in moved.items() if _whole(place) in broken and self._is_lost(place, one)]
        self._before = {place: one.without_content() for place, one in now.seen.items()}
        values = {
            place: (_digest(self._start, place), one.mark, one.plain)
            for place, one in moved.items()
            if _whole(place) not in broken
        }
        states, unsaid = _states(now.holders)
        unsaved_names = [*map(_named, unsaved), *unsaid]
        return {"values": values, "unsaved": unsaved_names, "states": states, "of_readers": self._of_readers.take()}

    def begin(self) -> str | None:
        """The first step comes next. Returns what to tell the user, where a run is resumed."""
        return self._of_readers.begin()

    def _is_lost(self, place: Place, one: SeenValue) -> bool:
        """Whether a value that is not saved counts: not where it was made once and is the same since (a cache)."""
        if one.is_plain or one.moves_on:
            return True
        return self._before is not None and not one.is_same(self._before.get(place))

    def remark(self, taken: Sequence[Saved]) -> str | None:
        """What to tell the user of what was taken, of all ranks; each name once in a run."""
        names = [name for name in taken[0]["unsaved"] if name not in self._told] if taken else []
        self._told.update(names)
        if not names:
            return None
        return (
            f"{_listed(names)} changed since the run began, and no checkpoint holds that: a resumed run would begin "
            f"with what your script builds; {INSTEAD}"
        )

    def restore(
        self, model: nn.Module, saved: Sequence[Saved], rank: int = 0, world: int = 1, goes_back: bool = False
    ) -> list[str]:
        """Become what a checkpoint holds; returns what to tell the user. ``goes_back``: to what this run has made."""
        if not saved:
            return []
        mine, differing = _of_rank(saved, rank, world)
        now = self._look(model)
        lost = [*differing, *mine["unsaved"], *self._load_states(now.holders, mine["states"])]
        told: list[str] = []
        put_back: list[str] = []
        homeless: list[str] = []
        for place, (start, then, plain) in mine["values"].items():
            digest = _digest(now.seen, place)
            if digest == then:
                continue
            if place[0] not in now.holders:
                homeless.append(_named(place))
            elif digest != start and not goes_back:
                told.append(_named(place))
            else:
                (put_back if self._put(now, place, plain) else lost).append(_named(place))
        if not goes_back:
            self._of_readers.expect(mine.get("of_readers", {}))
        if goes_back:
            lost += self._begin_again(now, mine["values"])
        elif put_back:
            self._say(f"as in the checkpoint: {_listed(put_back)}")
        return [*_remark_on_lost(lost), *_remark_on_homeless(homeless), *_remark_on_other(told)]

    def _begin_again(self, now: _Look, saved: dict[Place, Any]) -> list[str]:
        """What had not moved yet at the checkpoint is what the run began with; the names of what cannot be."""
        lost = []
        moved = {place: one for place, one in now.seen.items() if not one.is_same(self._start.get(place))}
        for place in now.without_records(moved, self._readers):
            if place in saved:
                continue
            if place not in self._start:
                now.holders[place[0]].drop(place[1])
            elif place not in self._began_with or not self._put(now, place, self._began_with[place]):
                lost.append(_named(place))
        return lost

    def _put(self, now: _Look, place: Place, plain: Any) -> bool:
        label, name = place
        holder = now.holders[label]
        try:
            holder.put(name, from_plain(plain, self._device, holder.values().get(name)))
        except (CannotKeep, AttributeError, KeyError):  # it lives on in an object, or by a name, that is not there
            return False
        return True

    def _load_states(self, holders: dict[str, Holder], states: dict[str, Any]) -> list[str]:
        lost = []
        for label, plain in states.items():
            holder = holders.get(label)
            try:
                state = from_plain(plain, self._device)
            except CannotKeep:  # of an earlier version, which wrote what cannot be made again from data
                holder = None
            if isinstance(holder, StateDictHolder):
                holder.load(state)
            else:
                lost.append(f"{label}.state_dict()")
        return lost

    def _look(self, model: nn.Module) -> _Look:
        holders, codes = find_holders(model, self._loss_fn, self._but_for)
        seen: dict[Place, SeenValue] = {}
        for label, holder in holders.items():
            for name, value in holder.values().items():
                if isinstance(value, ONE_WAY_ITERATORS):
                    seen[label, name] = see_iterator(value)
                elif not _is_others(value):
                    seen[label, name] = see(value)
        return _Look(holders, codes, seen)


def _is_others(value: Any) -> bool:
    return isinstance(value, IGNORED) or package_of(type(value)) in (*OPAQUE, "brim")


def _digest(seen: dict[Place, SeenValue], place: Place) -> str:
    return seen[place].digest if place in seen else ABSENT


def _states(holders: dict[str, Holder]) -> tuple[dict[str, Any], list[str]]:
    """What objects say themselves that they keep, and the labels of those where that is no data."""
    states: dict[str, Any] = {}
    unsaid: list[str] = []
    for label, holder in holders.items():
        if isinstance(holder, StateDictHolder):
            try:
                states[label] = to_plain(holder.state(), is_state=True)
            except Exception:  # the user's own method: a run does not end with it
                unsaid.append(f"{label}.state_dict()")
    return states, unsaid


def _of_rank(saved: Sequence[Saved], rank: int, world: int) -> tuple[Saved, list[str]]:
    """What this rank goes on with. Among another number of ranks: what they all had, and the names of the rest."""
    if len(saved) in (1, world):
        return saved[min(rank, len(saved) - 1)], []
    first, *others = saved
    is_shared = {
        place: all(place in other["values"] and other["values"][place][1] == value[1] for other in others)
        for place, value in first["values"].items()
    }
    shared = {place: value for place, value in first["values"].items() if is_shared[place]}
    return {**first, "values": shared}, [_named(place) for place, alike in is_shared.items() if not alike]


def without_repeats(taken: Sequence[Saved]) -> list[Saved]:
    """What ranks have taken; one where all have the same."""
    marks = [{place: value[1] for place, value in one["values"].items()} for one in taken]
    return list(taken[:1] if all(one == marks[0] for one in marks) else taken)


def _remark_on_lost(names: list[str]) -> list[str]:
    if not names:
        return []
    return [
        f"{_listed(names)} had changed by then, and the checkpoint does not hold that: the run goes on with what your "
        f"script has built; {INSTEAD}"
    ]


def _remark_on_homeless(names: list[str]) -> list[str]:
    return [f"the checkpoint holds {_listed(names)}, which this run's model and loss do not have"] if names else []


def _remark_on_other(names: list[str]) -> list[str]:
    if not names:
        return []
    return [
        f"{_listed(names)}: neither what the run began with nor what the checkpoint holds, so it stays as your script "
        "has set it"
    ]


def _whole(place: Place) -> str:
    """What belongs together: the values of an object, and each name by itself."""
    label, name = place
    return label if label != NAMES else f"the name {name}"


def _named(place: Place) -> str:
    return ".".join(part for part in place if part)


def _listed(names: Iterable[str]) -> str:
    return some_of(dict.fromkeys(names), SHOWN)
