"""What a run says about its steps."""

from brim.engine.captured.report import CaptureReport


def test_replayed_steps_are_counted_among_all():
    report = CaptureReport(captured=True, replays=1234, eager=6, graphs=2)
    assert report.sentence() == "1,234 of 1,240 steps were replayed from 2 captured graphs"


def test_replays_of_before_a_refusal_are_told():
    report = CaptureReport(captured=False, reason="its memory was needed", replays=5, eager=5, graphs=1)
    assert report.sentence().startswith("5 of 10 steps were replayed")


def test_eager_steps_have_their_reason():
    assert (
        CaptureReport(reason="there is no GPU", eager=1000).sentence() == "all 1,000 steps were eager: there is no GPU"
    )


def test_without_a_reason_there_were_too_few_steps():
    assert CaptureReport(eager=2).sentence() == "all 2 steps were eager: there were too few to capture"
