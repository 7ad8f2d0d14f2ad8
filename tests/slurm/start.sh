#!/usr/bin/env bash
# A Slurm of its own on this machine, for tests: one node, no accounting, all files in FOLDER, ports of its own.
# Needs root and Debian's packages slurm-wlm and munge. Prints what to put into the environment.
#   eval "$(tests/slurm/start.sh FOLDER)" ... tests/slurm/stop.sh FOLDER
set -euo pipefail
base=$(realpath -m "${1:?give a folder}")
here=$(cd "$(dirname "$0")" && pwd)
port=${2:-16817}
mkdir -p "$base"/{state,spool,log,munge}
chmod 700 "$base/munge"
head -c 1024 /dev/urandom > "$base/munge/key"
chmod 400 "$base/munge/key"
socket="$base/munge/socket"
munged --force --socket="$socket" --key-file="$base/munge/key" --pid-file="$base/munge/pid" --seed-file="$base/munge/seed" \
  --log-file="$base/log/munged.log" 2>> "$base/log/start.log"
host=$(hostname -s)
memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo)
cat > "$base/slurm.conf" <<CONF
ClusterName=mobench
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$base/state
SlurmdSpoolDir=$base/spool
SlurmctldPidFile=$base/slurmctld.pid
SlurmdPidFile=$base/slurmd.pid
SlurmctldLogFile=$base/log/slurmctld.log
SlurmdLogFile=$base/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
JobRequeue=1
KillWait=5
MinJobAge=300
InactiveLimit=0
SlurmctldParameters=preempt_send_user_signal
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$memory State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=10
PartitionName=high Nodes=$host Default=NO MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF
export SLURM_CONF="$base/slurm.conf"
slurmctld -c 2>> "$base/log/start.log" >&2
slurmd 2>> "$base/log/start.log" >&2
for _ in $(seq 1 100); do
  if sinfo -h -o %T 2>/dev/null | grep -qE '^(idle|mix)'; then
    echo "export SLURM_CONF=$SLURM_CONF PATH=$here/bin:$PATH"
    exit 0
  fi
  sleep 0.2
done
echo "Slurm did not come up:" >&2
tail -n 20 "$base"/log/*.log >&2
exit 1
