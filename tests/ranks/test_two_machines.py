"""Two machines that are network namespaces with a cable between them: the real launcher, a real loss of the network.

They wait for timeouts of torch's launcher, and take root.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.waiting import wait_until
from rank_training import ROUNDING, difference, train

pytestmark = [pytest.mark.netns, pytest.mark.slow]

HERE = Path(__file__).parent
STEPS = 60
CUT = 12  # the step after which something happens; the checkpoint before it is of step 10
PATIENCE_S = 4  # of a rank for one that is lost; ten minutes would be too long for a test
NOBODY_IS_LOST_S = 600  # a rank whose core is busy with other work is no lost one
PORT = 29400

SCRIPT = f"""
import os, sys, time
from datetime import timedelta
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
import torch
import brim
from brim.engine.distributed import process_group
from rank_training import this_rank, train

run, machine = Path(sys.argv[1]), sys.argv[2]
process_group.TIMEOUT = timedelta(seconds=int(sys.argv[3]))
pauses = [float(pause) for pause in sys.argv[4:]]  # after each step, for one rank and for two
world = int(os.environ["WORLD_SIZE"])
with (run.parent / f"starts-{{machine}}").open("a") as starts:
    print(world, file=starts)

class Meanwhile(brim.Callback):
    def on_step_end(self, trainer, step, loss):
        (run.parent / f"at-{{machine}}").write_text(f"{{step}} {{os.getpid()}}")
        time.sleep(pauses[world - 1])

trained = train(max_steps={STEPS}, run_dir=run, resume="auto", checkpoint_every=5, optimizer="AdamW", lr=1e-2,
                callbacks=[Meanwhile()])
if this_rank() == 0:
    torch.save(trained["weights"], run / "weights.pt")
"""


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip())
    return done.stdout


class TwoMachines:
    """Machine 1 keeps the rendezvous; a launcher on each starts one rank."""

    def __init__(self, folder):
        self.folder = folder
        self.names = [f"brim-{os.getpid()}-{machine}" for machine in (1, 2)]
        self.launchers = []
        (folder / "script.py").write_text(SCRIPT)

    def connect(self):
        for name in self.names:
            ip("netns", "add", name)
        one, other = self.names
        ip("link", "add", "cable", "netns", one, "type", "veth", "peer", "name", "cable", "netns", other)
        for machine, name in enumerate(self.names, 1):
            ip("-n", name, "address", "add", f"10.0.0.{machine}/24", "dev", "cable")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "cable", "up")

    def start(self, machine, nodes, pauses=(0.0, 0.05), keep_alive=1, patience=PATIENCE_S):
        """A launcher on a machine; ``keep_alive``: it may be silent for three times as many seconds before it is lost.

        ``patience``: seconds of a rank for another one.
        """
        conf = f"is_host={int(machine == 1)},keep_alive_interval={keep_alive},last_call_timeout=2"
        command = [
            sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", "--nproc-per-node=1",
            "--max-restarts=3", "--rdzv-backend=c10d", "--rdzv-id=two", f"--rdzv-endpoint=10.0.0.1:{PORT}",
            f"--local-addr=10.0.0.{machine}", f"--rdzv-conf={conf}",
            "script.py", self.folder / "run", str(machine), str(patience), *map(str, pauses),
        ]  # fmt: skip
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.names[machine - 1], *command], cwd=self.folder, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=(self.folder / f"said-{machine}").open("a"), env={
                **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "cable",
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            },
        )  # fmt: skip
        self.launchers.append(process)
        return process

    def wait_for_step(self, machine, step):
        """The process that has made it."""
        wait_until(lambda: self.at(machine)[0] >= step, self.launchers[machine - 1])
        return self.at(machine)[1]

    def at(self, machine):
        """The step that was made last, and the process that made it."""
        with_pid = re.fullmatch(r"(\d+) (\d+)", self.read(f"at-{machine}"))
        return (int(with_pid[1]), int(with_pid[2])) if with_pid else (0, 0)

    def wait_for_start(self, machine, worlds):
        wait_until(lambda: self.worlds(machine) == worlds, self.launchers[machine - 1])

    def worlds(self, machine):
        """How many ranks there were at each start on a machine."""
        return [int(world) for world in self.read(f"starts-{machine}").split()]

    def read(self, name):
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def set_link(self, state):
        ip("-n", self.names[1], "link", "set", "cable", state)

    def kill_all(self, machine):
        """As a machine that loses its power."""
        for pid in ip("netns", "pids", self.names[machine - 1]).split():
            os.kill(int(pid), signal.SIGKILL)

    def assert_ended(self, machine, process):
        assert process.wait() == 0, self.read(f"said-{machine}")[-3000:]

    def weights(self):
        return {"weights": torch.load(self.folder / "run" / "weights.pt")}

    def log(self):
        return self.read("run/log.txt")

    def remove(self):
        existing = ip("netns", "list")
        for machine, name in enumerate(self.names, 1):
            if name in existing:
                self.kill_all(machine)
                ip("netns", "delete", name)
        for launcher in self.launchers:
            launcher.wait()


@pytest.fixture
def machines(tmp_path, nothing_remembered):
    if not shutil.which("ip"):
        pytest.skip("two machines are made with ip, of iproute2")
    both = TwoMachines(tmp_path)
    try:
        both.connect()
    except OSError as error:
        both.remove()
        pytest.skip(f"network namespaces are not allowed here: {error}")
    yield both
    both.remove()


@pytest.fixture
def when_asked(request):
    if "netns" not in request.config.option.markexpr:
        pytest.skip("waits for timeouts of torch's launcher; pytest -m netns runs it")


def straight():
    return train(max_steps=STEPS, optimizer="AdamW", lr=1e-2)


def test_two_machines_train_as_one_process(launch, machines):
    patient = {"pauses": (0, 0), "keep_alive": NOBODY_IS_LOST_S // 3, "patience": NOBODY_IS_LOST_S}
    one, other = machines.start(1, 2, **patient), machines.start(2, 2, **patient)
    machines.assert_ended(1, one)
    machines.assert_ended(2, other)
    (alone,) = launch(1, straight)
    assert machines.worlds(1) == machines.worlds(2) == [2]
    assert difference(machines.weights(), alone) <= ROUNDING


@pytest.mark.parametrize("machine", [1, 2])
def test_a_process_that_is_killed_starts_all_ranks_of_both_machines_again(launch, when_asked, machines, machine):
    one, other = machines.start(1, 2), machines.start(2, 2)
    os.kill(machines.wait_for_step(machine, CUT), signal.SIGKILL)
    machines.assert_ended(1, one)
    machines.assert_ended(2, other)
    (alone,) = launch(1, straight)
    assert machines.worlds(1) == machines.worlds(2) == [2, 2]
    assert "resuming after step 10 " in machines.log()
    assert difference(machines.weights(), alone) <= ROUNDING


def test_when_a_machine_is_cut_off_the_other_goes_on_alone(launch, when_asked, machines):
    one, _ = machines.start(1, "1:2"), machines.start(2, "1:2")
    machines.wait_for_step(1, CUT)
    machines.set_link("down")
    machines.assert_ended(1, one)
    (alone,) = launch(1, straight)
    assert (machines.worlds(1), machines.worlds(2)) == ([2, 1], [2])
    assert "resuming after step 10 " in machines.log()
    assert difference(machines.weights(), alone) <= ROUNDING


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_machine_that_comes_back_joins_again(launch, when_asked, machines, loses_power):
    pauses = (0.5, 0.05)  # alone the first one is slow enough to be joined
    one, other = machines.start(1, "1:2", pauses), machines.start(2, "1:2", pauses)
    machines.wait_for_step(1, CUT)
    machines.set_link("down")
    if loses_power:
        machines.kill_all(2)
    machines.wait_for_start(1, [2, 1])
    machines.set_link("up")
    if loses_power:
        other = machines.start(2, "1:2", pauses)
    machines.assert_ended(1, one)
    machines.assert_ended(2, other)
    (alone,) = launch(1, straight)
    assert (machines.worlds(1), machines.worlds(2)) == ([2, 1, 2], [2, 2])
    assert machines.log().count("resuming after step") == 2
    assert difference(machines.weights(), alone) <= ROUNDING
