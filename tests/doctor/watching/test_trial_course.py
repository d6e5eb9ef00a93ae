from brim.doctor.observation import LiveTrial
from brim.doctor.watching.live_trials import TriedSetting
from brim.doctor.watching.trial_course import WITHOUT, TrialCourse


def test_each_setting_is_compared_with_the_steps_around_it():
    happened = []
    settings = [
        TriedSetting(
            name, 1, lambda name=name: happened.append(f"{name} on"), lambda name=name: happened.append(f"{name} off")
        )
        for name in ("threads", "fused")
    ]
    course = TrialCourse()
    stages = course.plan(settings, has_ceiling=True)
    turn = ["trial threads", "trial nothing", "trial fused", "trial nothing"]
    assert [stage.name for stage in stages] == [*turn, *turn]
    # The ceiling's steps end first. Steps that something else made slow count once at most.
    for step, following in zip([5.0, 1.0, 6.0, 9.0, 8.0, 2.0, 6.0, 2.0, 5.5], [*stages, None], strict=True):
        course.stage_ended(step, following)
    assert happened == ["threads on", "threads off", "fused on", "fused off"] * 2
    assert course.done() == (LiveTrial("threads", 1, 1.0, 5.5), LiveTrial("fused", 1, 2.0, 5.75))


def test_a_script_that_ends_in_the_first_trial_has_none():
    course = TrialCourse()
    stages = course.plan([TriedSetting("threads", 1, lambda: None, lambda: None)], has_ceiling=True)
    course.stage_ended(4.0, stages[0])
    course.stage_ended(1.0, stages[1])
    assert course.done() == ()


def test_without_a_ceiling_some_steps_without_anything_come_first():
    course = TrialCourse()
    setting = TriedSetting("threads", 1, lambda: None, lambda: None)
    assert course.plan([setting], has_ceiling=False)[0] == WITHOUT
    assert course.plan([], has_ceiling=False) == []
