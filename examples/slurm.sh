#!/bin/bash
# Runs MEMES with Slurm on 4 nodes with 8 GPUs each: `sbatch examples/slurm.sh`.
# The run has one shard per GPU. If the job is submitted again, it resumes the run, even on other nodes.
#SBATCH --job-name=memes
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue

out=runs/ant-32-gpus
if [ -e "$out/config.json" ]; then
    srun memes resume "$out"
else
    # 32 lanes per GPU. The first process writes to the folder, which all processes must be able to read.
    srun memes run ant --lanes 1024 --shards 32 --generations 2000 --out "$out"
fi
