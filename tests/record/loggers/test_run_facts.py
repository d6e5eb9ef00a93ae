from brim.errors import BrimError, Preempted
from brim.record.loggers.run_facts import Ending, remember_run, remembered_run, run_facts


def test_a_configuration_that_is_no_yaml_is_left_out(tmp_path):
    (tmp_path / "config.yaml").write_text("a: [1,")
    (tmp_path / "about.json").write_text('{"model": "Net"}')
    assert run_facts(tmp_path) == {"about": {"model": "Net"}}


def test_a_run_is_remembered_and_one_that_is_not_is_empty(tmp_path):
    assert remembered_run(tmp_path, "x.json") == {}
    remember_run(tmp_path, "x.json", {"id": "a"})
    assert remembered_run(tmp_path, "x.json") == {"id": "a"}
    (tmp_path / "x.json").write_text("half {")
    assert remembered_run(tmp_path, "x.json") == {}


def test_how_a_run_ended_is_told_by_the_error_that_is_its_own():
    def status_of(error):
        try:
            raise error
        except BaseException:
            return ending.status()

    ending = Ending()
    assert [status_of(one) for one in (KeyboardInterrupt(), Preempted(""), BrimError(""))] == [
        "KILLED", "KILLED", "FAILED",
    ]  # fmt: skip
    assert ending.status() == "FINISHED"
    try:
        raise ValueError("of before")
    except ValueError:
        assert Ending().status() == "FINISHED" and ending.status() == "FAILED"
