"""A training as a job for Slurm: a script that starts it, and goes on with it when its time is up."""

import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from brim.cli.launch import LAST_STEP_S, RESTARTS, RUN_DIR, SIGNALS, VERDICT
from brim.errors import ConfigError, Preempted

NOTICE_S = LAST_STEP_S + 30  # before the time is up; what does not stop in time is killed early enough to ask for more
CPUS_PER_GPU = 8
DAY = "24:00:00"
GPUS = 8  # of a node, where those of this machine say nothing
TIME = re.compile(r"\d+(:\d{1,2}){0,2}|\d+-\d{1,2}(:\d{1,2}){0,2}")

# Who gets which signal: B: in --signal means this shell alone. It tells srun, srun tells torch's launcher on each node,
# and (as the cluster is set up) the ranks too; the launcher tells its ranks, which mind being told once, not twice.
# SIGTERM would end srun itself. The launcher ends with 1 whatever happened, hence the verdict and the variable asked.
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
{gpus}#SBATCH --cpus-per-task={cpus}
#SBATCH --time={time}
#SBATCH --signal=B:USR1@{notice}
#SBATCH --requeue
#SBATCH --open-mode=append

# Written by brim train --slurm. Submit it, with what your cluster asks for besides: sbatch --partition=NAME FILE

cd -- {folder} || exit 2
run={run}
mkdir -p -- "$run" || exit 2
export {verdict}="$run/verdict" # brim leaves an exit code here where trying again is in vain
rm -f -- "${verdict}"
export OMP_NUM_THREADS=1 # brim shares out the cores itself
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK" # not handed on by srun itself
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT={last_step} # seconds for the last step and its checkpoint; else 30
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # or what is left of ranks that died confuses those that follow
host=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((10000 + SLURM_JOB_ID % 20000))

srun {python} -m torch.distributed.run \\
  --nnodes="$SLURM_NNODES" --nproc-per-node={processes} --max-restarts={restarts} \\
  --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$host:$port" \\
  --signals-to-handle={signals} \\
  -m brim train {arguments} --resume auto &
step=$!
asked=
trap 'asked=yes; kill -USR1 "$step"' USR1 # the time is nearly up, or somebody wants the nodes
while kill -0 "$step" 2>/dev/null; do wait "$step"; done # a signal ends a wait
wait "$step"
code=$?

if [ -s "${verdict}" ]; then
  code=$(cat "${verdict}")
elif [ -n "$asked" ] && [ "$code" -ne 0 ]; then
  code={preempted}
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""


@dataclass(frozen=True)
class SlurmJob:
    """What is asked of the cluster, and the arguments of ``brim train`` that every rank gets.

    Without a run folder there is one for each job, which has the same name when the job is started again.
    """

    name: str
    nodes: int
    gpus: int
    processes: int
    time: str
    folder: Path
    run: str | None
    arguments: tuple[str, ...]


def slurm_script(job: SlurmJob) -> str:
    """The text of a script for sbatch."""
    if not TIME.fullmatch(job.time):
        raise ConfigError(f"--time {job.time} is not a time of Slurm's; write hours:minutes:seconds, as in 24:00:00")
    own_folder = f"runs/{job.name}-$SLURM_JOB_ID"
    arguments = [shlex.quote(argument) for argument in job.arguments]
    arguments.append(f'{RUN_DIR}"$run"' if job.run is None else shlex.quote(f"{RUN_DIR}{json.dumps(job.run)}"))
    return SCRIPT.format(
        name=job.name,
        nodes=job.nodes,
        gpus=f"#SBATCH --gpus-per-node={job.gpus}\n" if job.gpus else "",
        cpus=CPUS_PER_GPU * job.processes,
        time=job.time,
        notice=NOTICE_S,
        folder=shlex.quote(str(job.folder)),
        run=f'"{own_folder}"' if job.run is None else shlex.quote(job.run),
        verdict=VERDICT,
        last_step=LAST_STEP_S,
        python=shlex.quote(sys.executable),
        processes=job.processes,
        restarts=RESTARTS,
        signals=SIGNALS,
        arguments=" ".join(arguments),
        preempted=Preempted.exit_code,
    )


def job_name(config: Path | None, run: str | None) -> str:
    """A name for the job: that of its run folder, where it has one, or of its configuration.

    >>> job_name(Path("configs/my model.yaml"), None)
    'my-model'
    """
    name = Path(run).name if run is not None else config.stem if config is not None else ""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "brim"


def processes_per_node(device: str, ranks: int | None, gpus: int | None) -> tuple[int, int]:
    """GPUs and processes of each node: one for each GPU, or as many ranks as are wanted on CPUs."""
    if device == "cpu":
        if gpus:
            raise ConfigError(f"--gpus-per-node {gpus} with trainer.device=cpu would leave them idle; name one of them")
        return 0, ranks or 1
    if ranks is not None:
        raise ConfigError("with --slurm there is a rank for each GPU: name --gpus-per-node in place of --ranks")
    if gpus == 0:
        raise ConfigError("--gpus-per-node 0 needs trainer.device=cpu")
    from brim.hardware import inventory

    found = gpus or len(inventory().gpus) or GPUS
    return found, found
