#!/bin/bash
# A run on 4 nodes of 8 GPUs each, by Slurm: `sbatch examples/slurm.sh`.
# It has as many shards as GPUs. Sent again, it goes on where it was stopped, also on other nodes.
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
    # 32 lanes for each of 32 GPUs. All processes must see the folder; the first one writes it.
    srun memes run ant --lanes 1024 --shards 32 --generations 2000 --out "$out"
fi
