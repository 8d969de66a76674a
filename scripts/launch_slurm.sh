#!/usr/bin/env bash
# Submit a run to SLURM, with an accelerate launcher on each node:
#
#   sbatch --nodes 2 --gpus-per-node 8 scripts/launch_slurm.sh \
#       configs/accelerate/two_nodes/fsdp2.yaml -m mmrl.rl config=configs/rl/mmada_t2i_clip.yaml
#
# The first word is the launch configuration, the rest is what accelerate launches; the numbers of
# nodes and processes are those of the allocation. Ten minutes before the time limit, and before
# SLURM pre-empts the job, SIGUSR1 makes the run write a checkpoint. A job that is queued again
# continues from it.
#SBATCH --job-name=mmrl
#SBATCH --ntasks-per-node=1
#SBATCH --signal=USR1@600
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: sbatch [options] $0 LAUNCH_CONFIGURATION -m mmrl.rl config=… [key=value …]" >&2
    exit 2
fi
export settings=$1
shift
export nodes=${SLURM_NNODES:-1}
export processes=$((nodes * ${SLURM_GPUS_ON_NODE:-1}))
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export first port=$((20000 + SLURM_JOB_ID % 20000)) # jobs that share a node need different ports

# Runs once on each node. The launcher starts its processes in sessions that SLURM does not signal,
# and would itself end at SIGUSR1, so the shell passes the signal on to the processes.
exec srun --kill-on-bad-exit=1 bash -c '
    trap "" USR1
    "${PYTHON:-python}" -m accelerate.commands.launch --config_file "$settings" \
        --num_machines "$nodes" --num_processes "$processes" --machine_rank "$SLURM_NODEID" \
        --main_process_ip "$first" --main_process_port "$port" \
        "$@" resume_from_checkpoint=auto &
    launcher=$!
    trap "pkill -USR1 -P $launcher || true" USR1
    trap "kill -TERM $launcher" TERM INT
    until wait "$launcher"; do
        status=$?
        kill -0 "$launcher" 2>/dev/null || exit "$status" # else a signal has interrupted the wait
    done
' launch "$@"
