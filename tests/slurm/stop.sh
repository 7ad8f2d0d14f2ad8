#!/usr/bin/env bash
# Stops the daemons of start.sh, by their pid files.
base=${1:?give the folder that start.sh was given}
for file in "$base/slurmd.pid" "$base/slurmctld.pid" "$base/munge/pid"; do
  [ -s "$file" ] || continue
  pid=$(cat "$file")
  kill "$pid" 2>/dev/null && timeout 20 tail --pid="$pid" -f /dev/null
done
exit 0
