import pytest

from brim.engine.run_state.progress import Progress


def test_progress_survives_json():
    progress = Progress(step=3, epoch=1, position=40, best=0.5, threads=2, metrics={"loss": 0.5})
    assert Progress.from_json(progress.to_json()) == progress


@pytest.mark.parametrize("wrong", [None, [], {"step": 1, "steps": 2}])
def test_another_file_is_not_taken_for_progress(wrong):
    with pytest.raises(ValueError, match="progress"):
        Progress.from_json(wrong)


def test_the_best_evaluation_is_remembered_in_either_direction():
    progress = Progress(step=1)
    assert progress.note_evaluation({"loss": 2.0}, 2.0, higher_is_better=False)
    progress.step = 2
    assert not progress.note_evaluation({"loss": 3.0}, 3.0, higher_is_better=False)
    assert (progress.best, progress.best_step) == (2.0, 1)
    assert progress.note_evaluation({"ndcg": 3.0}, 3.0, higher_is_better=True)


def test_the_next_epoch_has_nothing_of_the_one_before():
    progress = Progress(
        epoch=1, position=40, epoch_batches=5, epoch_loss=2.0, epoch_losses=3, epoch_seconds=1.5, step=9
    )
    progress.begin_next_epoch()
    assert progress == Progress(epoch=2, step=9) and progress.epoch_mean is None


def test_epochs_are_counted_as_people_do():
    assert Progress(epoch=0, position=5).epoch_number == 1
    assert Progress(epoch=1, position=0).epoch_number == 1
