#!/bin/bash
# deploy/hosts/check.sh hosts
# Checks that every host of the file accepts ssh without a password and has this folder and this version of tenon.
# Prints a line for each; the exit status is the number of hosts that failed. The variable SSH names the ssh client.
set -uo pipefail

tenon=$(command -v tenon) || { echo "tenon is not on the PATH here: activate its environment first." >&2; exit 255; }
here=$("$tenon" --version)
failed=0
# The file is not ssh's input: ssh would read the lines that follow.
while IFS=': ' read -r host _ <&3; do
  [[ "$host" == "" || "$host" == "#"* ]] && continue
  there=$("${SSH:-ssh}" -o BatchMode=yes -o ConnectTimeout=5 "$host" "cd '$PWD' && '$tenon' --version" 2>&1) || true
  if [ "$there" = "$here" ]; then
    echo "$host: $there"
  else
    echo "$host: cannot take part: ${there:-no answer}"
    failed=$((failed + 1))
  fi
done 3< "$1"
exit "$failed"
