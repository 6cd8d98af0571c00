#!/bin/bash
# Pre-training on several nodes of a SLURM cluster, one worker a node:
#   sbatch --export=ALL,DATA=/shared/data,MODEL_NAME=mine examples/cluster/slurm.sh
# All nodes see this folder, DATA and the model directory under the same names.
#SBATCH --job-name=convbert
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
set -u
PYTHON=${PYTHON:-.venv/bin/python}
RECIPE=${RECIPE:-configs/convbert_small.json}
RESTARTS=${RESTARTS:-3}

cd "${SLURM_SUBMIT_DIR:-.}" || exit 1
for ((attempt = 0; ; attempt++)); do
    # --kill-on-bad-exit=0: the workers end by themselves, with a sentence.
    srun --distribution=block --kill-on-bad-exit=0 --wait=120 "$PYTHON" run_pretraining.py --strategy multi_worker \
        --data_dir "$DATA" --model_name "$MODEL_NAME" --recipe "$RECIPE" "$@"
    status=$?
    # 75: a worker was lost; 137: it was killed. Everything else would only be repeated.
    if ((status != 75 && status != 137)) || ((attempt == RESTARTS)); then
        exit "$status"
    fi
    echo "starting again, $((attempt + 1)) of $RESTARTS times" >&2
done
