from brim.doctor.stages import OBSERVE, PROFILED, TIMED, TRIAL, WARM_UP, Stage, at_pace, trial_stage


def test_a_stage_needs_steps_and_time_but_not_for_ever():
    stage = Stage("timed", least=10, seconds=4.0, most=100, patience=25.0)
    assert not stage.is_over(9, 10.0) and not stage.is_over(99, 1.0)
    assert stage.is_over(10, 4.0) and stage.is_over(100, 0.1)
    assert stage.is_over(3, 26.0) and not stage.is_over(2, 60.0)


def test_a_quick_pace_leaves_the_steps_that_are_needed():
    quick = at_pace(OBSERVE, 0.0)
    assert [stage.least for stage in quick] == [stage.least for stage in OBSERVE]
    assert quick[1].is_over(10, 0.0) and not quick[1].is_over(9, 0.0)
    assert trial_stage("threads").name == "trial threads"


def test_more_of_quick_steps_are_profiled_than_of_slow_ones():
    (profiled,) = (stage for stage in OBSERVE if stage.name == PROFILED)
    assert profiled.is_over(4, 1.0) and not profiled.is_over(10, 0.01) and profiled.is_over(100, 0.1)


def test_compiling_is_no_part_of_a_trial_and_is_seen_in_an_observation():
    warm_up, timed = at_pace(TRIAL, 0.0)
    assert (warm_up.name, timed.name) == (WARM_UP, TIMED) and warm_up.settled and timed.restarts
    assert not any(stage.restarts or stage.settled for stage in OBSERVE)
