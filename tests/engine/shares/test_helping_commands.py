import pytest

from brim.engine.shares.helping_commands import doctor_command, plan_command


@pytest.mark.parametrize(
    ("argv", "doctor", "plan"),
    [
        (["train.py"], "brim doctor train.py", "brim plan MODULE:FUNCTION"),
        (["a b.py", "--name", "x y"], "brim doctor 'a b.py' -- --name 'x y'", "brim plan MODULE:FUNCTION"),
        (["brim", "train", "--ranks", "2", "c.yml", "a.b=1"], "brim doctor c.yml a.b=1", "brim plan c.yml a.b=1"),
        (["/bin/brim", "train"], "brim doctor /bin/brim -- train", "brim plan MODULE:FUNCTION"),
        (["ipykernel_launcher"], "brim doctor SCRIPT.py", "brim plan MODULE:FUNCTION"),
        ([], "brim doctor SCRIPT.py", "brim plan MODULE:FUNCTION"),
    ],
)
def test_the_command_names_what_was_started(argv, doctor, plan):
    assert (doctor_command(argv), plan_command(argv)) == (doctor, plan)
